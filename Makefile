# SPDX-License-Identifier: Apache-2.0
# The two commands of the README. Each does all its set-up; CMakePresets.json has the finer-grained ways.
.PHONY: demo test setup build format
JOBS ?= $(shell nproc)
BUILD := build/dev
# a ptxas that setup fetched, where no CUDA toolkit is installed
export CGP_PTXAS ?= $(firstword $(shell command -v ptxas) $(wildcard /usr/local/cuda/bin/ptxas) $(wildcard $(CURDIR)/build/ptxas/ptxas))

demo: build
	@$(BUILD)/tools/cgp/cgp doctor || true
	@scripts/demo.sh $(BUILD)/tools/cgp/cgp

test: build
	cd $(BUILD) && ctest --output-on-failure -j $(JOBS)

build: setup
	@cmake --preset dev >/dev/null
	cmake --build $(BUILD) -j $(JOBS)

setup:
	@scripts/setup.sh

format:
	git ls-files '*.h' '*.cpp' | grep -v testdata | xargs clang-format-14 -i
