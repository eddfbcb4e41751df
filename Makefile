# SPDX-License-Identifier: Apache-2.0
# The two commands of the README, and format and docs of CONTRIBUTING.md. Each does all its set-up; CMakePresets.json has the finer-grained ways.
.PHONY: demo test setup build format docs
JOBS ?= $(shell nproc)
BUILD := build/dev
# the ptxas of a CUDA toolkit, else the one that setup fetched
export CGP_PTXAS ?= $(shell command -v ptxas || for p in "$${CUDA_HOME:-/usr/local/cuda}/bin/ptxas" "$(CURDIR)/build/ptxas/ptxas"; do \
  if [ -x "$$p" ]; then echo "$$p"; break; fi; done)

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

# The interfaces from the headers, into build/docs/html. Doxygen is installed on demand.
docs:
	@command -v doxygen >/dev/null || PACKAGES=doxygen scripts/setup.sh
	@mkdir -p build/docs
	CGP_VERSION=$$(sed -n 's/^project(cgp VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt) doxygen docs/Doxyfile
	@echo "build/docs/html/index.html"
