# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# make            build everything into build/ (SAN=1: with ASan and UBSan, into build-san/)
# make demo       set up, build, attach to a real training run and print its report; SMALL=1: with less to download
# make test       set up, build, run the tests that a commit has to hold; make test-all: all tests
# make packages   an archive, a .deb and a wheel, in build/: docs/install.md
# make fuzz       every reader of hostile bytes against clang's libFuzzer, FUZZ_SECONDS each
# CC=clang builds with clang.

VERSION := 0.1.0
PREFIX  ?= /usr/local
DESTDIR ?=
CC      ?= gcc
CLANG   ?= clang
BPFTOOL ?= $(or $(shell PATH=$$PATH:/usr/sbin:/sbin command -v bpftool),bpftool)
V       ?= 0
Q       := $(if $(filter 1,$(V)),,@)

BUILD   := build$(if $(SAN),-san)
CFLAGS  ?= $(if $(SAN),$(TEST_CFLAGS),-O2 -g)
# Most of a test in tests/bpf/ is all BPF code as one file: with -O1 the sanitizers make its compilation take four times as long.
# It also makes gcc know less of the lengths of texts.
TEST_CFLAGS := -Og -g1 -Wno-format-truncation
# What is generated is the same for all builds.
GEN     := build
WARN    := -std=gnu11 -Wall -Wextra -Werror -Wno-unused-parameter -Wstrict-prototypes -Wmissing-prototypes
comma    := ,
SANFLAGS := $(if $(SAN),-fsanitize=address$(comma)undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
ALL_CFLAGS := $(CFLAGS) $(WARN) $(SANFLAGS) -DSTEPFLAME_VERSION='"$(VERSION)"' -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64 \
	-I. -isystem $(GEN)
LIBS    := -lbpf -lelf -lcapstone -ljansson -linih -levent_core -levent_extra -lncursesw -liberty -lz -lm -lpthread -lstdc++

BPF_SRC := $(wildcard bpf/*.bpf.c)
BPF_OBJ := $(BPF_SRC:bpf/%.bpf.c=$(GEN)/bpf/%.bpf.o)
SKEL    := $(if $(BPF_SRC),$(GEN)/stepflame.skel.h)

# The library that programs with CUDA load, where CUDA's headers are: those that set-up finds, or CUDA_INCLUDE="DIR...".
INJECT_INCLUDE := $(or $(CUDA_INCLUDE),$(shell tools/setup.sh cuda --found))
INJECT  := $(if $(INJECT_INCLUDE),$(BUILD)/libstepflame-inject.so)
INJECT_HEADERS := $(addprefix -isystem ,$(INJECT_INCLUDE))
INJECT_CFLAGS := $(CFLAGS) $(WARN) -I. -D_GNU_SOURCE -fPIC -fvisibility=hidden $(INJECT_HEADERS)

SRC     := $(filter-out user/main.c user/inject/%,$(wildcard user/*/*.c user/*/*/*.c))
OBJ     := $(SRC:%.c=$(BUILD)/%.o)
LIB     := $(BUILD)/libstepflame.a
BIN     := $(if $(wildcard user/main.c),$(BUILD)/stepflame)
TOOLS   := $(patsubst tools/%.c,$(BUILD)/tools/%,$(wildcard tools/*.c))
UNIT    := $(patsubst tests/unit/%.c,$(BUILD)/tests/unit/%,$(filter-out $(if $(INJECT),,%/test_gpu_inject.c),$(wildcard tests/unit/test_*.c)))
NATIVE  := $(patsubst tests/bpf/%.c,$(BUILD)/tests/bpf/%,$(wildcard tests/bpf/test_*.c))

FUZZERS := $(filter-out replay,$(patsubst tests/fuzz/%.c,%,$(wildcard tests/fuzz/*.c)))
FUZZ    := $(FUZZERS:%=$(BUILD)/tests/fuzz/%)
REPLAY  := $(FUZZ:%=%-replay)

# The doubles of CUDA's libraries: what tests of GPUs run with where there is none. Made when the tests' Python is there, whose CUDA has headers.
GPU     := $(BUILD)/tests/gpu
DOUBLES := $(addprefix $(GPU)/,libcuda.so.1 libcudart.so.13 libcudart.so.12 libcupti.so.13 libnccl.so.2 libnvidia-ml.so.1 libkernels.so \
	libcollector.so train train-static train-static-stripped calls calls-static calls-static-stripped libnvtx_log.so \
	libnvtx_ranges-O0.so libnvtx_ranges-O2.so)

.PHONY: all man completions portable archive deb wheel packages doubles setup demo test test-all tests unit e2e test-gpu test-matrix test-vm fuzz fuzzers fuzz-replay zoo recordings bench lint lint-all tidy install clean
.DELETE_ON_ERROR:
.SECONDARY:

all: $(BIN) $(TOOLS) $(INJECT)

$(GEN)/bpf/%.bpf.o: bpf/%.bpf.c $(wildcard bpf/*.h include/*.h)
	@mkdir -p $(@D)
	@echo '  BPF   $<'
	$(Q)$(CLANG) -target bpf -mcpu=v3 -O2 -g -Wall -Werror -Wno-gnu-variable-sized-type-not-at-end -D__TARGET_ARCH_x86 -I. -I/usr/include/$(shell uname -m)-linux-gnu -c $< -o $@

$(GEN)/stepflame.bpf.o: $(BPF_OBJ)
	$(Q)$(BPFTOOL) gen object $@ $^

$(GEN)/stepflame.skel.h: $(GEN)/stepflame.bpf.o
	@echo '  SKEL  $@'
	$(Q)$(BPFTOOL) gen skeleton $< name stepflame_bpf > $@

$(GEN)/syscall_names.h:
	@mkdir -p $(@D)
	$(Q)echo '#include <sys/syscall.h>' | $(CC) -E -dM - | sed -n 's/^#define __NR_\([a-z0-9_]*\) \([0-9]*\)$$/[\2] = "\1",/p' > $@

# What has been found in a file, and was kept, holds as long as this is what looks for it.
$(GEN)/finders.h: $(wildcard user/elf/*.[ch] user/x86/*.[ch] user/proc/*.[ch] user/runtime/*/* user/session/probe_list.c $(addprefix user/session/sources/,gpu.c landmarks.c natives.c) include/*.h)
	@mkdir -p $(@D)
	$(Q)cat $(sort $^) | cksum | sed 's/^\([0-9]*\).*/#define FINDERS \1u/' > $@

# -MD lists the headers of each object, generated ones among them; on the first build these must be there before.
$(BUILD)/%.o: %.c | $(SKEL) $(GEN)/syscall_names.h $(GEN)/finders.h
	@mkdir -p $(@D)
	@echo '  CC    $<'
	$(Q)$(CC) $(ALL_CFLAGS) -MD -MP -c $< -o $@

# What it embeds.
$(BUILD)/user/page/page.o: $(wildcard user/page/*.html user/page/*.css user/page/*.js)

$(LIB): $(OBJ)
	$(Q)rm -f $@ && $(AR) rcs $@ $^

$(BUILD)/stepflame: $(BUILD)/user/main.o $(LIB)
	@echo '  LD    $@'
	$(Q)$(CC) $(ALL_CFLAGS) $^ $(LDFLAGS) $(LIBS) -o $@

# Not sanitized: it must load into programs that are not.
$(BUILD)/libstepflame-inject.so: $(wildcard user/inject/*.[ch]) include/gpu.h include/gpu_ring.h
	@$(if $(INJECT),,echo 'make: $@ needs the headers of CUDA: tools/setup.sh cuda gets them, or set CUDA_INCLUDE' >&2; exit 1)
	@mkdir -p $(@D)
	@echo '  LD    $@'
	$(Q)$(CC) $(INJECT_CFLAGS) -shared -Wl,-z,defs,-z,nodelete,-z,now $(filter %.c,$^) $(LDFLAGS) -ldl -lpthread -o $@

# For a machine that has none of the libraries: the program, its libraries and the injection library in one folder; and an archive of that.
portable: $(BUILD)/portable/stepflame $(if $(INJECT),$(BUILD)/portable/libstepflame-inject.so archive)

$(BUILD)/portable/stepflame: $(BUILD)/user/main.o $(LIB) tools/portable.sh
	@mkdir -p $(@D)
	@echo '  LD    $@'
	$(Q)$(CC) $(ALL_CFLAGS) $(filter-out %.sh,$^) $(LDFLAGS) -s -Wl,--disable-new-dtags,-rpath,'$$ORIGIN/lib:$$ORIGIN/../lib/stepflame' $(LIBS) -o $@
	$(Q)tools/portable.sh $@

$(BUILD)/portable/libstepflame-inject.so: $(BUILD)/libstepflame-inject.so
	@mkdir -p $(@D)
	$(Q)cp $< $@

$(BUILD)/tools/%: $(BUILD)/tools/%.o $(LIB)
	$(Q)$(CC) $(ALL_CFLAGS) $^ $(LDFLAGS) $(LIBS) -o $@

$(UNIT:%=%.o) $(NATIVE:%=%.o): ALL_CFLAGS += $(TEST_CFLAGS)
$(BUILD)/tests/unit/test_gpu_inject.o: ALL_CFLAGS += $(INJECT_HEADERS)

$(BUILD)/tests/unit/%: $(BUILD)/tests/unit/%.o $(LIB)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) $^ $(LDFLAGS) $(LIBS) -lcmocka -o $@

$(BUILD)/tests/bpf/%: $(BUILD)/tests/bpf/%.o $(LIB)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) $^ $(LDFLAGS) $(LIBS) -lcmocka -o $@

doubles: $(DOUBLES)

# CUDA_INCLUDE: where its headers are; else set-up finds them, or gets them.
$(GPU)/include_dirs: tools/setup.sh
	@mkdir -p $(@D)
	$(Q)$(if $(CUDA_INCLUDE),echo '$(CUDA_INCLUDE)',tools/setup.sh cuda --tests) > $@

# The newest record of each kind that this CUPTI has, and the names of its functions.
$(GPU)/cupti_records.h: $(GPU)/include_dirs tests/gpu/cupti_headers.sh
	$(Q)tests/gpu/cupti_headers.sh $(GPU) $$(cat $<)

GPU_CFLAGS = $(CFLAGS) $(filter-out -Wmissing-prototypes,$(WARN)) -Wno-deprecated-declarations -D_GNU_SOURCE -fPIC -I. -I$(GPU) \
	$(addprefix -isystem ,$(shell cat $(GPU)/include_dirs))

$(GPU)/%.o: tests/gpu/%.c $(GPU)/cupti_records.h
	@echo '  CC    $<'
	$(Q)$(CC) $(GPU_CFLAGS) -MD -MP -c $< -o $@

GPU_SO = $(CC) $(CFLAGS) -shared -Wl,-soname,$(@F) -Wl,-z,nodelete $(filter %.o,$^) -o $@ -ldl -lpthread

$(GPU)/libcuda.so.1: $(addprefix $(GPU)/,core.o sim.o driver.o driver_work.o)
$(GPU)/libcupti.so.13: $(addprefix $(GPU)/,cupti_callback.o cupti_activity.o cupti_buffers.o cupti_stubs.o)
$(GPU)/libnccl.so.2: $(GPU)/nccl.o
$(GPU)/libnvidia-ml.so.1: $(GPU)/nvml.o
$(GPU)/libcudart.so.13: $(addprefix $(GPU)/,runtime.o runtime_copy.o)
$(GPU)/libcuda.so.1 $(GPU)/libcudart.so.13 $(GPU)/libcupti.so.13 $(GPU)/libnccl.so.2 $(GPU)/libnvidia-ml.so.1: tests/gpu/exports.map
	$(Q)sed 's/SONAME/$(if $(filter libcudart% libcupti%,$(@F)),$(@F))/' tests/gpu/exports.map > $@.map
	$(Q)$(GPU_SO) -Wl,--version-script,$@.map

$(GPU)/libcudart.so.12: $(GPU)/libcudart.so.13
	$(Q)ln -sf $(<F) $@

$(GPU)/libkernels.so: $(GPU)/kernels.o
$(GPU)/libcollector.so: $(GPU)/collector.o
$(GPU)/libkernels.so $(GPU)/libcollector.so:
	$(Q)$(GPU_SO)

# What writes down NVTX's ranges, and a library that has some, as compilers make it with and without optimization.
$(GPU)/libnvtx_log.so: $(GPU)/nvtx_log.o
	$(Q)$(GPU_SO)

$(GPU)/libnvtx_ranges-%.so: tests/gpu/nvtx_ranges.c $(GPU)/include_dirs
	$(Q)$(CC) $(GPU_CFLAGS) -$* -shared $< -o $@ -ldl

# They find the doubles beside them, and so do these each other.
GPU_PROGRAM = $(CC) $(CFLAGS) $^ -o $@ -Wl,--disable-new-dtags,-rpath,'$$ORIGIN' -ldl -lpthread

$(GPU)/train: $(addprefix $(GPU)/,train.o registered.o kernels.o libcudart.so.13 libnccl.so.2)
	$(Q)$(GPU_PROGRAM)

# With the runtime linked into it, as nvcc does if not told otherwise.
$(GPU)/train-static: $(addprefix $(GPU)/,train.o registered.o kernels.o runtime.o runtime_copy.o libnccl.so.2)
	$(Q)$(GPU_PROGRAM)

# They call the driver themselves, too.
$(GPU)/calls: $(addprefix $(GPU)/,calls.o registered.o kernels.o libcudart.so.13 libnccl.so.2 libcuda.so.1)
	$(Q)$(GPU_PROGRAM)

$(GPU)/calls-static: $(addprefix $(GPU)/,calls.o registered.o kernels.o runtime.o runtime_copy.o libnccl.so.2 libcuda.so.1)
	$(Q)$(GPU_PROGRAM)

$(GPU)/%-stripped: $(GPU)/%
	$(Q)strip -o $@ $<

setup:
	$(Q)tools/setup.sh build

# The tools that set-up may install are looked up when make starts: so build in a second make.
# SMALL=1: with Debian's own torch, which is 30 times smaller.
demo:
	$(Q)tools/setup.sh plan $(if $(SMALL),--small)
	$(Q)tools/setup.sh build
	$(Q)$(MAKE) --no-print-directory all
	$(Q)tools/demo.sh $(if $(SMALL),--small)

# The programs of the C tests.
tests: $(UNIT) $(NATIVE)

unit: tests
	$(Q)BUILD=$(BUILD) tests/run.py C

# ARGS go to pytest: make e2e ARGS='-k gan'
e2e: all
	$(Q)STEPFLAME=$(BUILD)/stepflame tests/run.py set-up packages doubles e2e alone -- $(ARGS)

# What a commit has to hold. tests/run.py sets up and builds, too.
test:
	$(Q)tests/run.py gate

# Everything, on a machine with nothing else to do: before a release, and before work on an area is done.
test-all:
	$(Q)tests/run.py all

# What a real GPU does, on a machine that has one and may have nothing else: TEST_PYTHON there has torch and pytest. Figures are printed, and
# written with small recordings into the folder OUT, if it is set.
test-gpu: all portable
	$(Q)STEPFLAME=$(BUILD)/portable/stepflame $(or $(TEST_PYTHON),$$(tools/setup.sh python)) -m pytest -v -rs tests/e2e/test_gpu_hardware.py tests/replay/test_gpu_compare.py $(ARGS)

# The comparison with Lightning on every other interpreter that is installed, and on an older torch.
test-matrix: setup
	$(Q)$(MAKE) --no-print-directory all
	$(Q)tests/e2e/matrix.sh

# Training programs that others wrote, and whether what the steps report says of them is right: tests/zoo/README.md. The table and the recordings go
# to the folder OUT; ZOO_SOURCES=DIR has checkouts. ARGS='-k NAME', '--list', '--seconds N'
zoo: setup
	$(Q)$(MAKE) --no-print-directory all
	$(Q)pythons=$$(tools/setup.sh python --zoo) && STEPFLAME=$(BUILD)/stepflame OUT=$(or $(OUT),$(BUILD)/zoo) \
		python3 tests/zoo/zoo.py --pythons "$$pythons" $(ARGS)

# Other kernels, in virtual machines: ARGS='-m "not long"' for the oldest alone.
test-vm: setup
	$(Q)$(MAKE) --no-print-directory all
	$(Q)python=$$(tools/setup.sh python) && $(MAKE) --no-print-directory doubles && STEPFLAME=$(BUILD)/stepflame \
		$$python -m pytest -v -rs tests/vm $(ARGS)

# The readers with ASan, UBSan and coverage, each against libFuzzer for FUZZ_SECONDS; a crash stays in build-fuzz/. ARGS='elf lines': these alone.
# NULL + 0, which pointer-overflow reports, is what C2y says it is.
FUZZ_FLAGS := -O1 -g -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize=pointer-overflow -fno-sanitize-recover=undefined \
	-fno-omit-frame-pointer

fuzz: setup
	$(Q)$(MAKE) --no-print-directory -j $$(nproc) BUILD=build-fuzz CC=$(CLANG) CFLAGS='$(FUZZ_FLAGS)' fuzzers
	$(Q)tests/fuzz/run.sh build-fuzz $(or $(FUZZ_SECONDS),60) $(or $(ARGS),$(FUZZERS))

fuzzers: $(FUZZ)

# What the fuzzers begin with, each input once and without libFuzzer. SAN=1: with the objects of the sanitized tests.
fuzz-replay: $(REPLAY)
	$(Q)tests/fuzz/run.sh $(BUILD) 0 $(or $(ARGS),$(FUZZERS))

$(BUILD)/tests/fuzz/memory $(BUILD)/tests/fuzz/memory-replay: LDFLAGS += -Wl,--wrap=process__read_memory,--wrap=nanosleep
$(BUILD)/tests/fuzz/proc $(BUILD)/tests/fuzz/proc-replay: LDFLAGS += -Wl,--wrap=open64
$(BUILD)/tests/fuzz/options $(BUILD)/tests/fuzz/options-replay: LDFLAGS += -Wl,--wrap=argp_parse,--wrap=argp_error,--wrap=session__new,--wrap=targets__choose_or_die,--wrap=exit

$(REPLAY): %-replay: %.o $(BUILD)/tests/fuzz/replay.o $(LIB)
	@echo '  LD    $@'
	$(Q)$(CC) $(ALL_CFLAGS) $^ $(LDFLAGS) $(LIBS) -o $@

$(FUZZ): %: %.o $(LIB)
	@echo '  LD    $@'
	$(Q)$(CC) $(ALL_CFLAGS) -fsanitize=fuzzer $^ $(LDFLAGS) $(LIBS) -o $@

# The recordings of real jobs that tests/replay reads, made anew, as root: tests/data/README.md. ARGS='fit jax': these alone.
recordings: all doubles
	$(Q)$$(tools/setup.sh python) tests/replay/record.py $(ARGS)

bench: setup
	$(Q)$(MAKE) --no-print-directory all doubles
	$(Q)python=$$(tools/setup.sh python) && $$python tools/bench.py --stepflame $(BUILD)/stepflame $(ARGS) \
		&& $$python tools/bench_ops.py --stepflame $(BUILD)/stepflame --sites $(BUILD)/tools/sites \
		&& $$python tools/bench_samples.py --stepflame $(BUILD)/stepflame \
		&& $$python tools/bench_io.py --stepflame $(BUILD)/stepflame \
		&& $$python tools/bench_beside.py --stepflame $(BUILD)/stepflame \
		&& $$python tools/bench_own.py --stepflame $(BUILD)/stepflame \
		&& $$python tools/bench_gpu.py --stepflame $(BUILD)/stepflame --sites $(BUILD)/tools/sites --doubles $(GPU) --library $(BUILD)/libstepflame-inject.so \
		&& $$python tools/bench_reports.py --stepflame $(BUILD)/stepflame

# The manual pages, from the option tables: stepflame(1), and one for each command.
MAN := $(BUILD)/man/stepflame.1 $(patsubst %,$(BUILD)/man/stepflame-%.1,$(shell sed -n 's/^\tX(\([a-z]*\)).*/\1/p' user/cmd/cmd.h))

man: $(MAN)

$(BUILD)/man/stepflame.1: $(BUILD)/tools/manual
	@mkdir -p $(@D)
	$(Q)$< man > $@

$(BUILD)/man/stepflame-%.1: $(BUILD)/tools/manual
	@mkdir -p $(@D)
	$(Q)$< man $* > $@

LINT_SRC = $(filter-out user/inject/%,$(wildcard user/*.c user/*/*.c user/*/*/*.c tools/*.c))
INJECT_SRC = $(if $(INJECT),$(wildcard user/inject/*.c))
TIDY_OK = $(BUILD)/tidy$(if $(TIDY_ALL),-all)
TIDY = $(patsubst %.c,$(TIDY_OK)/%.ok,$(LINT_SRC) $(INJECT_SRC))

# clang-tidy takes most of it, and all processors: a file once, until what it is made of changes. Nearly all of that is its analyzer, which here
# follows a function for a tenth of the way that it goes by itself; lint-all: all of the way.
lint-all:
	$(Q)$(MAKE) --no-print-directory lint TIDY_ALL=1

lint: $(SKEL) $(GEN)/syscall_names.h $(GEN)/finders.h
	$(Q)tools/guards.sh
	$(Q)python3 tools/layers.py
	$(Q)python3 tools/docs.py
	$(Q)python3 tools/clocks.py
	$(Q)python3 tools/bpf_stack.py $(GEN)/stepflame.bpf.o
	$(Q)clang-format --dry-run -Werror $(wildcard include/*.h bpf/*.[ch] user/*.[ch] user/*/*.[ch] user/*/*/*.[ch] tools/*.c tests/*.h tests/*/*.[ch] tests/bpf/native/*.h)
	$(Q)! command -v shellcheck >/dev/null || shellcheck -x -e SC1091 tools/*.sh tools/*/*.sh tools/service/p* tests/*/*.sh .ci/run
	$(Q)$(MAKE) --no-print-directory -j $$(nproc) tidy

tidy: $(TIDY)
	$(Q)kept=$${XDG_CACHE_HOME:-$$HOME/.cache}/stepflame/tidy; [ ! -d "$$kept" ] || find "$$kept" -type f -mtime +60 -delete

TIDY_DEPTH := $(if $(TIDY_ALL),,-Xclang -analyzer-config -Xclang max-nodes=20000)
TIDY_CFLAGS = $(filter-out -Werror,$(ALL_CFLAGS)) $(TIDY_DEPTH)
$(patsubst %.c,$(TIDY_OK)/%.ok,$(INJECT_SRC)): TIDY_CFLAGS = $(filter-out -Werror,$(INJECT_CFLAGS)) $(TIDY_DEPTH)

# The object knows the headers; those of the injection library are all that its folder and include/ have.
$(TIDY_OK)/user/inject/%.ok: user/inject/%.c $(wildcard user/inject/*.h include/*.h) .clang-tidy
	@mkdir -p $(@D)
	$(Q)tools/tidy.sh $< $(TIDY_CFLAGS)
	@touch $@

$(TIDY_OK)/%.ok: %.c $(BUILD)/%.o .clang-tidy
	@mkdir -p $(@D)
	$(Q)tools/tidy.sh $< $(TIDY_CFLAGS)
	@touch $@

SHELLS := bash zsh fish
COMPLETIONS := $(SHELLS:%=$(BUILD)/completion/%)

completions: $(COMPLETIONS)

$(BUILD)/completion/%: $(BUILD)/tools/completion
	@mkdir -p $(@D)
	$(Q)$< $* > $@

# PROGRAM: what is installed as stepflame.
PROGRAM := $(BUILD)/stepflame
SHARE   := $(DESTDIR)$(PREFIX)/share
DOC     := $(SHARE)/doc/stepflame

install: all man completions
	$(Q)install -D -m 755 $(PROGRAM) $(DESTDIR)$(PREFIX)/bin/stepflame
	$(Q)$(if $(INJECT),install -D -m 644 $(INJECT) $(DESTDIR)$(PREFIX)/lib/stepflame/libstepflame-inject.so)
	$(Q)install -d $(DOC) $(SHARE)/man/man1
	$(Q)install -m 644 $(MAN) $(SHARE)/man/man1
	$(Q)install -D -m 644 $(BUILD)/completion/bash $(SHARE)/bash-completion/completions/stepflame
	$(Q)install -D -m 644 $(BUILD)/completion/zsh $(SHARE)/zsh/$(ZSH_FUNCTIONS)/_stepflame
	$(Q)install -D -m 644 $(BUILD)/completion/fish $(SHARE)/fish/vendor_completions.d/stepflame.fish
	$(Q)install -m 644 LICENSE README.md CHANGELOG.md tools/service/alerts.yml tools/service/dashboard.json tools/service/daemonset.yaml tools/service/watch.conf $(DOC)
	$(Q)install -d $(DESTDIR)$(PREFIX)/lib/systemd/system
	$(Q)sed 's,/usr/bin/,$(PREFIX)/bin/,' tools/service/stepflame-watch.service >$(DESTDIR)$(PREFIX)/lib/systemd/system/stepflame-watch.service
	$(Q)chmod 644 $(DESTDIR)$(PREFIX)/lib/systemd/system/stepflame-watch.service
	$(Q)install -D -m 644 -t $(DOC)/docs $(wildcard docs/*.md)

# Debian's zsh looks for the functions of packages in another folder than for those of the administrator.
ZSH_FUNCTIONS := $(if $(filter /usr,$(PREFIX)),vendor-completions,site-functions)

# The date of what is in packages, so that the same sources make the same package.
DATE := $(or $(SOURCE_DATE_EPOCH),$(shell git log -1 --format=%ct 2>/dev/null),$(shell stat -c %Y CHANGELOG.md))

ARCHIVE := stepflame-$(VERSION)-$(shell uname -m)
DEB     := $(BUILD)/stepflame_$(VERSION)-1_amd64.deb
PACKAGED := $(BIN) $(TOOLS) $(BUILD)/libstepflame-inject.so $(MAN) $(COMPLETIONS) Makefile README.md CHANGELOG.md LICENSE $(wildcard docs/*.md tools/service/*)

packages: archive deb wheel
archive: $(BUILD)/$(ARCHIVE).tar.gz
deb: $(DEB)
wheel: $(BUILD)/wheel.made

$(BUILD)/$(ARCHIVE).tar.gz: $(BUILD)/portable/stepflame $(PACKAGED)
	$(Q)rm -rf $(BUILD)/archive
	$(Q)$(MAKE) --no-print-directory install DESTDIR=$(BUILD)/archive PREFIX=/$(ARCHIVE) PROGRAM=$<
	$(Q)install -m 644 -t $(BUILD)/archive/$(ARCHIVE)/lib/stepflame $(BUILD)/portable/lib/*
	$(Q)install -D -m 644 -t $(BUILD)/archive/$(ARCHIVE)/share/doc/stepflame/licenses $(BUILD)/portable/licenses/*
	$(Q)install -m 644 LICENSE README.md $(BUILD)/archive/$(ARCHIVE)
	$(Q)tar -C $(BUILD)/archive --sort=name --owner=0 --group=0 --numeric-owner --mtime=@$(DATE) -c $(ARCHIVE) | gzip -9n > $@

# libbpf is linked into it, because that of Debian 12 is too old.
$(BUILD)/debian/stepflame: $(BUILD)/user/main.o $(LIB)
	@mkdir -p $(@D)
	@echo '  LD    $@'
	$(Q)$(CC) $(ALL_CFLAGS) $^ $(LDFLAGS) -s -Wl,-z,relro,-z,now,--as-needed $(LIBS:-lbpf=-l:libbpf.a) -o $@

$(DEB): $(BUILD)/debian/stepflame $(PACKAGED) tools/deb.sh
	$(Q)rm -rf $(BUILD)/debian/root
	$(Q)$(MAKE) --no-print-directory install DESTDIR=$(BUILD)/debian/root PREFIX=/usr PROGRAM=$<
	$(Q)strip --strip-unneeded $(BUILD)/debian/root/usr/lib/stepflame/libstepflame-inject.so
	$(Q)SOURCE_DATE_EPOCH=$(DATE) tools/deb.sh $(BUILD)/debian/root $(VERSION) $@

# Its name has the version of glibc that is found then.
$(BUILD)/wheel.made: $(BUILD)/portable/stepflame $(BUILD)/portable/libstepflame-inject.so README.md LICENSE tools/wheel.py \
		$(shell find user/python/stepflame -type f ! -path '*/__pycache__/*')
	$(Q)SOURCE_DATE_EPOCH=$(DATE) python3 tools/wheel.py $(BUILD)/portable $(VERSION) $(BUILD)
	@touch $@

clean:
	rm -rf build build-san build-fuzz

-include $(shell find $(BUILD) -type f -name '*.d' 2>/dev/null)
