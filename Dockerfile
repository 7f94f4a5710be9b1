# The server without the embedded PostgreSQL. It writes only below /tmp: run it with a read-only root file system.
FROM node:24-bookworm-slim AS build
# Optional packages: the AI SDK, for language models.
ARG PACKAGES="ai@7 @ai-sdk/openai-compatible@3"
COPY . /src
RUN /src/deploy/build.sh /opt/parley $PACKAGES

FROM node:24-bookworm-slim
COPY --from=build /opt/parley /opt/parley
# The first start writes its API key into this directory.
ENV NODE_ENV=production PARLEY_HOST=0.0.0.0 PARLEY_DATA_DIR=/tmp/parley
USER node
EXPOSE 3000
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
  CMD ["node", "-e", "fetch('http://127.0.0.1:3001/health/ready').then(({ ok }) => process.exit(ok ? 0 : 1), () => process.exit(1))"]
ENTRYPOINT ["/opt/parley/node_modules/.bin/parley"]
CMD ["serve"]
