# SPDX-License-Identifier: Apache-2.0
# A machine that builds and tests this tree, and has the Python package; no GPU and no CUDA toolkit are needed.
#   docker build -t cgp . && docker run --rm -it --gpus all cgp        (without --gpus: the emulator)
FROM debian:12
WORKDIR /cgp
COPY scripts/setup.sh scripts/setup.sh
RUN scripts/setup.sh
COPY . .
# PyTorch and transformers are only used, not built against: pip install torch transformers.
RUN python3 -m pip install --break-system-packages . && cd / && python3 -c "import cgp; print(cgp.device())"
CMD ["bash"]
