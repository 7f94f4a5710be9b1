#!/bin/sh
# Builds the server's package from this checkout and installs it in a folder. Further arguments go to npm.
#
#   deploy/build.sh /opt/parley
#
# Needs Node 20 or later with npm to build; the server needs Node 22.19 or later.
set -eu
target=$1
shift
mkdir -p "$target"
target=$(cd "$target" && pwd)
cd "$(dirname "$0")/.."
npx --yes pnpm@12 install --frozen-lockfile
rm -f dist/parley-server-*.tgz
npx --yes pnpm@12 run tarballs
cp deploy/package.json deploy/package-lock.json "$target"
cp dist/parley-server-*.tgz "$target/parley-server.tgz"
npm ci --prefix "$target" --no-audit --no-fund "$@"
