# SPDX-License-Identifier: MIT
# txmap. `make help` lists what can be asked for.

CC	?= gcc
ifeq ($(origin CC),default)
CC	:= gcc
endif
PREFIX	?= /usr/local
B	:= build

WARN	:= -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wundef -Werror
CFLAGS	?= -O2 -g
# A source that asks for the GNU interfaces itself is not told twice.
GNU	= $(if $(shell grep -s '^.define _GNU_SOURCE' $<),,-D_GNU_SOURCE)
FLAGS	= -std=gnu17 $(WARN) -fvisibility=hidden -fPIC -ftls-model=initial-exec -pthread -U_FORTIFY_SOURCE $(CFLAGS)
ALL_CFLAGS = $(GNU) $(FLAGS) -MMD -MP
LDFLAGS	?=
# make V=1 shows the commands whole.
Q	:= $(if $(V),,@)

# The layers: what each may include is the layering, so nothing else stands on the include path.
INC_core	:= -Icore/api -Icore
INC_policy	:= -Icore/api -Ipolicy/api -Ipolicy
INC_cli		:= $(INC_policy) -Ipolicy/cli $(shell pkg-config --cflags smartcols json-c 2>/dev/null)
INC_shim	:= -Ipolicy/api -Ishim
# Tests may look inside what they test.
INC_tests	:= -Icore/api -Icore -Ipolicy/api -Ipolicy -Itests/lib

SRC_core	:= $(wildcard core/*.c)
SRC_policy	:= $(wildcard policy/*.c)
SRC_cli		:= $(wildcard policy/cli/*.c)
SRC_shim	:= $(wildcard shim/*.c)
SRC_testlib	:= $(wildcard tests/lib/*.c)

TESTS_core	:= $(patsubst %.c,%,$(wildcard tests/core/test_*.c))
TESTS_policy	:= $(patsubst %.c,%,$(wildcard tests/policy/test_*.c))
TESTS_preload	:= $(patsubst %.c,%,$(wildcard tests/preload/*.c))
CRASH_libs	:= $(patsubst %.c,%.so,$(wildcard tests/crash/lib*.c))
TESTS_crash	:= $(filter-out $(CRASH_libs:.so=),$(patsubst %.c,%,$(wildcard tests/crash/*.c)))
TESTS_bad	:= $(patsubst %.c,%,$(wildcard tests/bad/*.c))
EXPLORE_objs	:= $(patsubst %.c,$(B)/%.o,$(wildcard tests/explore/*.c))
FAULTS_objs	:= $(patsubst %.c,$(B)/%.o,$(wildcard tests/faults/*.c))
FSX_objs	:= $(patsubst %.c,$(B)/%.o,$(wildcard tests/fsx/*.c))
CHAOS_objs	:= $(patsubst %.c,$(B)/%.o,$(wildcard tests/chaos/*.c))
TESTS_bench	:= $(patsubst %.c,%,$(wildcard tests/bench/*.c))
TESTS_program	:= $(patsubst tests/programs/src/%.c,tests/programs/%,$(wildcard tests/programs/src/*_load.c))
CTOR_libs	:= $(patsubst %.c,%.so,$(wildcard tests/ctor/early*.c))
TESTS_ctor	:= $(filter-out $(CTOR_libs:.so=),$(patsubst %.c,%,$(wildcard tests/ctor/*.c)))
FUZZERS		:= journal settings control answers share
PLUGINS		:= $(patsubst tests/plugin/%.c,%,$(wildcard tests/plugin/*.c))

LIBS_so		:= -lunwind -ldl
LIBS_cli	:= -lunwind -ldl -lsmartcols -ljson-c
LIBS_test	:= -lcmocka -lunwind -ldl
SO_LDFLAGS	:= -shared -Wl,-z,defs -Wl,-z,now -Wl,-z,relro -Wl,-z,nodelete -Wl,--as-needed -Wl,--exclude-libs,ALL

.PHONY: all tests help demo check bench asan tsan map programs crash faults fuzz matrix soak install uninstall clean
.DELETE_ON_ERROR:
all: $(B)/libtxmap.so $(B)/txmap

# ---- one set of rules for each way of building: $(1) directory, $(2) extra flags

define variant
$(1)/.flags: force
	@mkdir -p $$(@D); echo '$$(CC) $(2) $$(FLAGS)' | cmp -s - $$@ || \
		echo '$$(CC) $(2) $$(FLAGS)' >$$@

$(foreach l,core policy shim testlib,$(eval OBJ_$(1)_$(l) := $(SRC_$(l):%.c=$(1)/%.o)))
$(eval OBJ_$(1)_cli := $(SRC_cli:%.c=$(1)/%.o))

$(1)/core/%.o: core/%.c $(1)/.flags
	@mkdir -p $$(@D); echo '  CC  $$@'
	$(Q)$$(CC) $$(INC_core) $$(ALL_CFLAGS) $(2) -c -o $$@ $$<
$(1)/policy/cli/%.o: policy/cli/%.c $(1)/.flags
	@mkdir -p $$(@D); echo '  CC  $$@'
	$(Q)$$(CC) $$(INC_cli) $$(ALL_CFLAGS) $(2) -c -o $$@ $$<
$(1)/policy/%.o: policy/%.c $(1)/.flags
	@mkdir -p $$(@D); echo '  CC  $$@'
	$(Q)$$(CC) $$(INC_policy) $$(ALL_CFLAGS) $(2) -c -o $$@ $$<
# The file backend drives core's journal, which is not for anyone else.
$(1)/policy/backend_f%.o: INC_policy += -Icore
$(1)/shim/%.o: shim/%.c $(1)/.flags
	@mkdir -p $$(@D); echo '  CC  $$@'
	$(Q)$$(CC) $$(INC_shim) $$(ALL_CFLAGS) $(2) -c -o $$@ $$<
$(1)/tests/lib/%.o: tests/lib/%.c $(1)/.flags
	@mkdir -p $$(@D); echo '  CC  $$@'
	$(Q)$$(CC) $$(INC_tests) $$(ALL_CFLAGS) $(2) -c -o $$@ $$<
$(1)/tests/core/%.o: tests/core/%.c $(1)/.flags
	@mkdir -p $$(@D); echo '  CC  $$@'
	$(Q)$$(CC) $$(INC_core) -Itests/lib $$(ALL_CFLAGS) $(2) -c -o $$@ $$<
$(1)/tests/policy/%.o: tests/policy/%.c $(1)/.flags
	@mkdir -p $$(@D); echo '  CC  $$@'
	$(Q)$$(CC) $$(INC_policy) -Icore -Itests/lib $$(ALL_CFLAGS) $(2) -c -o $$@ $$<

$(1)/tests/core/test_%: $(1)/tests/core/test_%.o $(OBJ_$(1)_core) $(OBJ_$(1)_testlib)
	@echo '  LD  $$@'
	$(Q)$$(CC) $(2) -pthread $$(LDFLAGS) -o $$@ $$^ $$(LIBS_test)
$(1)/tests/policy/test_%: $(1)/tests/policy/test_%.o $(OBJ_$(1)_policy) $(OBJ_$(1)_core) $(OBJ_$(1)_testlib)
	@echo '  LD  $$@'
	$(Q)$$(CC) $(2) -pthread -rdynamic $$(LDFLAGS) -o $$@ $$^ $$(LIBS_test)
endef

SAN_asan := -O1 -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=undefined
# gcc's ThreadSanitizer does not see fences, and says so where one stands.
SAN_tsan := -O1 -fno-omit-frame-pointer -fsanitize=thread $(if $(findstring clang,$(CC)),,-Wno-tsan)
SAN_fuzz := -O1 -fno-omit-frame-pointer -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined
$(eval $(call variant,$(B),))
$(eval $(call variant,$(B)/asan,$(SAN_asan)))
$(eval $(call variant,$(B)/tsan,$(SAN_tsan)))
$(eval $(call variant,$(B)/fuzz,$(SAN_fuzz)))
# libFuzzer is part of clang, whoever compiles the rest.
$(B)/fuzz/%: CC := clang
.PHONY: force
.SECONDARY:

# ---- the two products

$(B)/libtxmap.so: $(OBJ_$(B)_core) $(OBJ_$(B)_policy) $(OBJ_$(B)_shim)
	@echo '  LD  $@'
	$(Q)$(CC) $(SO_LDFLAGS) -pthread $(LDFLAGS) -o $@ $^ $(LIBS_so)

$(B)/txmap: $(OBJ_$(B)_cli) $(OBJ_$(B)_policy) $(OBJ_$(B)_core)
	@echo '  LD  $@'
	$(Q)$(CC) -pthread -Wl,-z,now -Wl,-z,relro -Wl,--as-needed $(LDFLAGS) -o $@ $^ $(LIBS_cli)

# ---- fuzzers

$(B)/fuzz/tests/fuzz/%.o: tests/fuzz/%.c $(B)/fuzz/.flags
	@mkdir -p $(@D); echo '  CC  $@'
	$(Q)$(CC) $(INC_cli) -Ipolicy/cli -Icore $(ALL_CFLAGS) $(SAN_fuzz) -c -o $@ $<
$(B)/fuzz/journal: $(B)/fuzz/tests/fuzz/reader.o
# Two of them have a source of ours within them, to call what is not for others.
$(B)/fuzz/answers: $(filter-out %/main.o %/target.o,$(OBJ_$(B)/fuzz_cli))
$(B)/fuzz/%: $(B)/fuzz/tests/fuzz/%.o $(OBJ_$(B)/fuzz_policy) $(OBJ_$(B)/fuzz_core)
	@echo '  LD  $@'
	$(Q)$(CC) $(SAN_fuzz) -fsanitize=fuzzer -pthread $(LDFLAGS) -o $@ \
		$(filter-out $(if $(filter share,$(*F)),%/share_socket.o),$^) $(LIBS_cli)

# ---- programs that the tests run: plain C, nothing of ours in them

PLAIN_CFLAGS = -std=gnu17 $(GNU) $(WARN) -pthread $(CFLAGS) -MMD -MP

$(B)/tests/preload/%: tests/preload/%.c $(B)/.flags
	@mkdir -p $(@D); echo '  CC  $@'
	$(Q)$(CC) $(PLAIN_CFLAGS) -o $@ $< -ldl
$(B)/tests/crash/%.so: tests/crash/%.c $(B)/.flags
	@mkdir -p $(@D); echo '  CC  $@'
	$(Q)$(CC) $(PLAIN_CFLAGS) -shared -fPIC -o $@ $<
$(B)/tests/crash/%: tests/crash/%.c $(B)/.flags
	@mkdir -p $(@D); echo '  CC  $@'
	$(Q)$(CC) $(PLAIN_CFLAGS) -o $@ $<
$(B)/tests/bad/%: tests/bad/%.c $(B)/.flags
	@mkdir -p $(@D); echo '  CC  $@'
	$(Q)$(CC) $(PLAIN_CFLAGS) -o $@ $<
$(B)/tests/fsx/%.o: tests/fsx/%.c $(B)/.flags
	@mkdir -p $(@D); echo '  CC  $@'
	$(Q)$(CC) $(PLAIN_CFLAGS) -c -o $@ $<
$(B)/tests/fsx/fsx: $(FSX_objs)
	@echo '  LD  $@'
	$(Q)$(CC) -pthread -o $@ $^
$(B)/tests/explore/%.o: tests/explore/%.c $(B)/.flags
	@mkdir -p $(@D); echo '  CC  $@'
	$(Q)$(CC) $(INC_policy) -Icore -Itests/lib $(ALL_CFLAGS) -c -o $@ $<
$(B)/tests/explore/explore: $(EXPLORE_objs) $(OBJ_$(B)_policy) $(OBJ_$(B)_core) $(B)/tests/lib/box.o
	@echo '  LD  $@'
	$(Q)$(CC) -pthread $(LDFLAGS) -o $@ $^ -lunwind -ldl
$(B)/tests/faults/%.o: tests/faults/%.c $(B)/.flags
	@mkdir -p $(@D); echo '  CC  $@'
	$(Q)$(CC) $(INC_policy) -Icore -Itests/lib $(ALL_CFLAGS) -c -o $@ $<
$(B)/tests/faults/faults: $(FAULTS_objs) $(OBJ_$(B)_policy) $(OBJ_$(B)_core) $(B)/tests/lib/faulty_sys.o
	@echo '  LD  $@'
	$(Q)$(CC) -pthread $(LDFLAGS) -o $@ $^ -lunwind -ldl
$(B)/tests/chaos/%.o: tests/chaos/%.c $(B)/.flags
	@mkdir -p $(@D); echo '  CC  $@'
	$(Q)$(CC) $(PLAIN_CFLAGS) -c -o $@ $<
$(B)/tests/chaos/chaos: $(CHAOS_objs)
	@echo '  LD  $@'
	$(Q)$(CC) -pthread -o $@ $^
$(B)/tests/power/%: tests/power/%.c $(B)/.flags
	@mkdir -p $(@D); echo '  CC  $@'
	$(Q)$(CC) $(PLAIN_CFLAGS) -o $@ $<
$(B)/tests/matrix/%: tests/matrix/%.c $(B)/.flags
	@mkdir -p $(@D); echo '  CC  $@'
	$(Q)$(CC) $(PLAIN_CFLAGS) -o $@ $<
$(B)/tests/bench/%: tests/bench/%.c $(B)/.flags
	@mkdir -p $(@D); echo '  CC  $@'
	$(Q)$(CC) $(PLAIN_CFLAGS) -o $@ $<
$(B)/tests/programs/lmdb_load: LIBS_program := -llmdb
$(B)/tests/programs/bdb_load: LIBS_program := -ldb
$(B)/tests/programs/%: tests/programs/src/%.c $(B)/.flags
	@mkdir -p $(@D); echo '  CC  $@'
	$(Q)$(CC) $(PLAIN_CFLAGS) -o $@ $< $(LIBS_program)
$(B)/tests/ctor/%.so: tests/ctor/%.c $(B)/.flags
	@mkdir -p $(@D); echo '  CC  $@'
	$(Q)$(CC) $(PLAIN_CFLAGS) -shared -fPIC -Wl,-soname,$(@F) -o $@ $<
$(B)/tests/ctor/%: tests/ctor/%.c $(B)/.flags $(CTOR_libs:%=$(B)/%)
	@mkdir -p $(@D); echo '  CC  $@'
	$(Q)$(CC) $(PLAIN_CFLAGS) -o $@ $< -Wl,-rpath,'$$ORIGIN' -Wl,--no-as-needed $(CTOR_libs:%=$(B)/%) -ldl
$(B)/plugins/%.so: tests/plugin/%.c $(B)/.flags
	@mkdir -p $(@D); echo '  CC  $@'
	$(Q)$(CC) -Icore/api $(PLAIN_CFLAGS) -shared -fPIC -Wl,-z,defs -o $@ $<

PLAIN_tests := $(addprefix $(B)/,$(TESTS_core) $(TESTS_policy) $(TESTS_preload) $(TESTS_crash) $(CRASH_libs) $(TESTS_ctor) \
		$(TESTS_bad) $(TESTS_program) tests/fsx/fsx tests/explore/explore tests/faults/faults \
		tests/chaos/chaos tests/matrix/confine tests/power/ledger) $(PLUGINS:%=$(B)/plugins/%.so)
ASAN_tests  := $(addprefix $(B)/asan/,$(TESTS_core) $(TESTS_policy))
TSAN_tests  := $(addprefix $(B)/tsan/,$(TESTS_core))
tests: all $(PLAIN_tests)

# ---- what people ask for (check and demo start make anew once the packages are there: what is found by asking
# the compiler, and clang or gcc itself, may only exist from then on)

check: ; @scripts/deps build check
	@$(MAKE) --no-print-directory all $(PLAIN_tests) $(ASAN_tests) $(TSAN_tests) $(FUZZERS:%=$(B)/fuzz/%)
	@scripts/run-tests plain checks preload fsx bad asan tsan programs crash faults power fuzz chaos matrix

asan: $(ASAN_tests) $(PLUGINS:%=$(B)/plugins/%.so)
	@scripts/run-tests asan
tsan: $(TSAN_tests)
	@scripts/run-tests tsan
programs: ; @scripts/deps build check programs
	@$(MAKE) --no-print-directory tests
	@full=1 scripts/run-tests programs
crash: tests
	@states=1000000 subsets=10 scripts/run-tests crash
faults: $(B)/tests/faults/faults
	@$< && $< --group
fuzz: ; @scripts/deps build check
	@$(MAKE) --no-print-directory $(FUZZERS:%=$(B)/fuzz/%)
	@for f in $(FUZZERS); do echo "$$f: $(time) s"; tests/fuzz/run.sh $$f $(time) || exit 1; done
fuzz: time ?= 600
matrix: tests
	@scripts/run-matrix
soak: ; @scripts/deps build check soak
	@$(MAKE) --no-print-directory tests
	@for f in ext4 xfs btrfs; do for s in file group; do tests/power/cut.sh $$f 100 $$s || exit 1; done; done
	@limit=7200 tests/bad/forks.sh 10000
	@for e in uffd segv; do tests/chaos/run.sh $$e 600 || exit 1; load=lazy tests/chaos/run.sh $$e 120 || exit 1; \
		more=TXMAP_SCOPE=group only_users=self tests/chaos/run.sh $$e 120 || exit 1; done
	@for k in lmdb gdbm gawk tdb rrdtool sqlite; do tests/crash/kill.sh $$k 1000 || exit 1; done
	@for s in 1 2 3; do for e in uffd segv; do for l in lazy eager; do \
		limit=7200 tests/fsx/run.sh $$e $$l 1000000 $$s || exit 1; \
		limit=7200 tests/fsx/run.sh $$e $$l 10000000 $$s --threads 4 || exit 1; \
		limit=7200 tests/fsx/run.sh $$e $$l 50000 $$s --size 67108864 || exit 1; done; done; done
map: $(B)/libtxmap.so $(B)/txmap
	@scripts/layers.sh map
bench: all $(addprefix $(B)/,$(TESTS_bench))
	@scripts/bench
demo: ; @scripts/deps build demo
	@$(MAKE) --no-print-directory all
	@scripts/demo

install: all
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/lib/txmap
	install -m 755 $(B)/txmap $(DESTDIR)$(PREFIX)/bin/txmap
	install -m 644 $(B)/libtxmap.so $(DESTDIR)$(PREFIX)/lib/txmap/libtxmap.so
	for m in $(wildcard docs/man/*.[1-9]); do \
		d=$(DESTDIR)$(PREFIX)/share/man/man$${m##*.}; install -d $$d && install -m 644 $$m $$d/ || exit 1; done
uninstall:
	rm -f $(DESTDIR)$(PREFIX)/bin/txmap $(DESTDIR)$(PREFIX)/lib/txmap/libtxmap.so
	for m in $(wildcard docs/man/*.[1-9]); do rm -f $(DESTDIR)$(PREFIX)/share/man/man$${m##*.}/$${m##*/}; done
clean:
	rm -rf $(B)

help:
	@echo 'make            build/libtxmap.so and build/txmap'
	@echo 'make demo       install what is missing, build, and show the main job on gawk, gdbm and Python'
	@echo 'make check      install what is missing, build, and run every test'
	@echo 'make bench      native and txmap side by side; a table, and build/bench.json'
	@echo 'make asan       the core and policy tests with AddressSanitizer and UBSan'
	@echo 'make tsan       the core tests with ThreadSanitizer'
	@echo 'make programs   only the real programs, more of them and with larger counts'
	@echo 'make crash      only the crash tests: programs killed, and 10^6 disks as power cuts leave them'
	@echo 'make faults     every host call of a workload fails in its turn, with every error, once and for ever'
	@echo 'make fuzz       10 minutes (time=600) of libFuzzer for each of: $(FUZZERS)'
	@echo 'make matrix     the preload tests as root and user, with uffd, segv, userfaultfd denied, and for user mode only'
	@echo 'make soak       100 power cuts of each file system; 10^4 forks, 10 minutes of chaos for each engine; 1000 kills of each program; 10^6 random operations, three seeds'
	@echo 'make map        the calls that cross from layer to layer'
	@echo 'make install    PREFIX=/usr/local DESTDIR='
	@echo 'make clean      remove build/'
	@echo 'CC=gcc|clang    CFLAGS="-O2 -g"    V=1: show the commands'

-include $(shell find $(B) -name '*.d' 2>/dev/null)
