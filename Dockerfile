# The `pgjq` command in an image: worker, reaper, migrate and everything else. Your handlers go into /app, by a volume or
# by an image of your own: FROM pgjq, COPY your code to /app, and install what it needs with
# `pip --python /opt/pgjq/bin/python install …` as root before you become 10001 again.

FROM python:3.13-slim AS build
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY pgjq pgjq
COPY sql sql
COPY migrations migrations
# A wheel, in an environment without pip: what runs has neither sources nor tools to build them.
RUN pip wheel --quiet --no-deps --wheel-dir /dist . \
 && python -m venv --without-pip /opt/pgjq \
 && pip --python /opt/pgjq/bin/python install --quiet --no-cache-dir --constraint constraints.txt \
      "$(echo /dist/pgjq-*.whl)[migrate,redis,msgpack,otel,prometheus,web]"

FROM python:3.13-slim
COPY --from=build /opt/pgjq /opt/pgjq
ENV PATH=/opt/pgjq/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
WORKDIR /app
# A number, so that platforms which insist on it can see that this is not root. It owns nothing and writes nothing.
USER 10001:10001
# Whether the storage can be reached from here, as who we are. A worker can say more of itself: see docker-compose.yml.
HEALTHCHECK --interval=60s --timeout=15s --start-period=30s CMD ["pgjq", "workers"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["pgjq"]
CMD ["--help"]
