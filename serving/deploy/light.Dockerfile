# The light server: LiteRT versions with OpenAI's API on 8080, gRPC on 8500, REST on 8501, without TensorFlow, in some 350 MB.
# Built from the client's wheel of this repository, on x86-64 or ARM64:
#   pip wheel --no-deps --wheel-dir dist ./client && docker build -f serving/deploy/light.Dockerfile -t albert-tf-light dist
#   albert-tf export --engine=litert --inputs=text --compute=int8 --model=sst2 --output_dir=models/sst2
#   docker run --rm --init --read-only -p 127.0.0.1:8080:8080 -v "$PWD/models/sst2:/models/sst2:ro" albert-tf-light --folder=/models/sst2
FROM python:3.12-slim-bookworm
COPY albert_tf_client-*.whl /wheels/
RUN pip install --no-cache-dir "$(ls /wheels/albert_tf_client-*.whl)[serve]"
# By number, so that Kubernetes can tell that it is not root (runAsNonRoot).
USER 1000:1000
EXPOSE 8080 8500 8501
# Ready: the model is loaded, and the gateway knows it.
HEALTHCHECK --interval=5s --timeout=5s --start-period=1m \
    CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8080/health/ready', timeout=3)"]
ENTRYPOINT ["albert-client", "start", "--bind_address=0.0.0.0"]
