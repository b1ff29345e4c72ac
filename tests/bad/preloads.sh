#!/bin/bash
# SPDX-License-Identifier: MIT
# Others in the process: sanitizers, preloads that answer calls before us, libraries that find libc before us, and much static
# TLS. Either it works as without us, or a line says what does not.
. "$(dirname "$0")/lib.sh"
command -v gcc >/dev/null || { echo 'no gcc here'; exit 77; }
tests=$top/tests/bad

family() { # PRELOADS PROGRAM [VAR=VALUE]...
	make_file a.dat o 64K
	set='commit=msync'
	settings
	run env "${vars[@]}" LD_PRELOAD="$1" "${@:3}" "$2" a.dat
	set=''
}
all_there() { is 0; says '^fine$'; holds a.dat ABCDEF; holds a.dat abcde 4096; }
build() { # CMD...: the compiler; what it makes can be run by all
	run "$@" && [ "$status" = 0 ] && chmod 755 "${@: -1}"
}

t_sanitizers() {
	local first
	claim 'AddressSanitizer of gcc: its library comes first, then ours'
	if build gcc -w -fsanitize=address "$tests/family.c" -o "$dir/asan"; then
		first=$(ldd asan | sed -n 's/.*libasan[^ ]* => \([^ ]*\).*/\1/p')
		family "$first:$so" ./asan; all_there; silent
		claim 'ours first: the sanitizer itself refuses to run, and says why'
		family "$so:$first" ./asan; [ "$status" != 0 ] || bad 'it runs'; errs 'ASan runtime does not come first'; holds a.dat ooo
	else
		echo 'not tried: gcc -fsanitize=address'
	fi
	claim 'and of clang, which is in the program; forks right after the first mapping, again and again'
	if command -v clang >/dev/null && build clang -w -fsanitize=address "$tests/family.c" -o "$dir/casan"; then
		for first in 1 2 3 4 5; do family "$so" ./casan; all_there; silent; done
	else
		echo 'not tried: clang -fsanitize=address'
	fi
	claim 'UndefinedBehaviorSanitizer'
	if build gcc -w -fsanitize=undefined "$tests/family.c" -o "$dir/ubsan"; then
		family "$so" ./ubsan; all_there; silent
	fi
	claim 'ThreadSanitizer, told that children may start threads'
	if build gcc -w -fsanitize=thread "$tests/family.c" -o "$dir/tsan"; then
		make_file a.dat o 64K
		set='commit=msync'; settings; set=''
		run env "${vars[@]}" TSAN_OPTIONS=die_after_fork=0 setarch -R ./tsan a.dat
		all_there
	fi
}

t_durability() {
	local before lies=$dir/lies.so
	cat >lies.c <<-'C'
		#include <stddef.h>
		int fsync(int fd) { return 0; }
		int fdatasync(int fd) { return 0; }
		int msync(void *p, size_t len, int flags) { return 0; }
	C
	build gcc -w -shared -fPIC lies.c -o "$lies" || return
	printf '%s\n' "open $dir/a.dat" 'map 0' 'store 0 new' 'msync' 'store 4096 two' 'exit 0' >orders
	for before in "$lies" /usr/lib/*/libeatmydata.so; do
		[ -e "$before" ] || continue
		claim "$before answers msync before us: a line says that, and the other events commit"
		make_file a.dat o 64K
		settings
		run env "${vars[@]}" LD_PRELOAD="$before:$so" sh -c 'exec "$0" <orders' "$poke"
		is 0; one_line; errs "warning: $before: answers msync and the like before txmap"; holds a.dat new; holds a.dat two 4096
		claim 'and then it is true that msync commits nothing'
		make_file a.dat o 64K
		set=commit=msync; settings; set=''
		run env "${vars[@]}" LD_PRELOAD="$before:$so" sh -c 'exec "$0" <orders' "$poke"
		is 0; holds a.dat ooo
		claim "$before behind us: msync commits, and no word"
		make_file a.dat o 64K
		run env "${vars[@]}" LD_PRELOAD="$so:$before" sh -c 'exec "$0" <orders' "$poke"
		is 0; silent; holds a.dat new; holds a.dat ooo 4096
		command -v strace >/dev/null || continue
		claim 'and the journal is on the disk'
		make_file a.dat o 64K
		run strace -f -qq -e trace=fdatasync,fsync -o "$dir/trace" env "${vars[@]}" LD_PRELOAD="$so:$before" sh -c 'exec "$0" <orders' "$poke"
		[ "$status" = 0 ] || { echo 'not tried: strace'; continue; }
		local n
		n=$(grep -c 'sync(' trace)
		make_file a.dat o 64K
		run strace -f -qq -e trace=fdatasync,fsync -o "$dir/trace" env "${vars[@]}" LD_PRELOAD="$so" sh -c 'exec "$0" <orders' "$poke"
		is 0
		[ "$n" -ge 2 ] && [ "$n" = "$(grep -c 'sync(' trace)" ] || bad "$n syncs, without it $(grep -c 'sync(' trace)"
		rm -f trace
	done
}

t_apart() {
	local lib
	cat >deep.c <<-'C'
		#include <fcntl.h>
		#include <string.h>
		#include <sys/mman.h>
		#include <unistd.h>
		#ifdef TABLE
		#undef mmap
		#undef open
		static const struct { int (*o)(const char *, int, ...); void *(*m)(void *, size_t, int, int, int, off_t); } calls = { open, mmap };
		#define open (*calls.o)
		#define mmap (*calls.m)
		#endif
		int work(const char *name, const char *text)
		{
			int fd = open(name, O_RDWR);
			char *p = mmap(0, 65536, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
			if (p == MAP_FAILED) return 1;
			memcpy(p, text, strlen(text));
			return msync(p, 65536, MS_SYNC) | munmap(p, 65536) | close(fd);
		}
	C
	cat >loads.c <<-'C'
		#define _GNU_SOURCE
		#include <dlfcn.h>
		#include <stdio.h>
		#include <stdlib.h>
		int work(const char *name, const char *text);
		int main(int argc, char **argv)
		{
			for (int i = 0; i < 2; i++) {
				void *h = dlopen(argv[2], RTLD_NOW | (atoi(argv[1]) ? RTLD_DEEPBIND : 0));
				int (*fn)(const char *, const char *) = h ? (void *)dlsym(h, "work") : NULL;
				if (!fn) return printf("%s\n", dlerror()), 1;
				printf("%d\n", fn("a.dat", "deep"));
			}
			return 0;
		}
	C
	mkdir plugins
	build gcc -w -shared -fPIC deep.c -o "$dir/plugins/libdeep.so" && build gcc -w loads.c -Wl,-rpath,'$ORIGIN/plugins' -ldl -o "$dir/loads" || return
	build gcc -w -shared -fPIC -Wl,-z,relro,-z,now deep.c -o "$dir/plugins/libnow.so"
	build gcc -w -shared -fPIC -DTABLE deep.c -o "$dir/plugins/libtable.so"
	chmod 755 plugins
	claim 'a library is found by the RUNPATH of who asks, and managed'
	set=log=info
	make_file a.dat o 64K; under ./loads 0 libdeep.so; is 0; says '^0$'; errs 'a.dat: managed by rule'; holds a.dat deep; quiet warning
	claim 'loaded by its path so that it finds libc first, bound at once or not: managed'
	for lib in libdeep libnow libtable; do
		make_file a.dat o 64K; under ./loads 1 "$dir/plugins/$lib.so"; is 0; says '^0$'; errs 'a.dat: managed by rule'; holds a.dat deep
		quiet warning
	done
	claim 'loaded so by a name alone: its own business, and one line that says so'
	make_file a.dat o 64K; under ./loads 1 libdeep.so; is 0; says '^0$'; quiet 'managed by'; holds a.dat deep
	[ "$(grep -c 'warning: libdeep.so: is loaded with RTLD_DEEPBIND' "$err_from")" = 1 ] || bad 'not one line'
	set=''
	claim 'without a rule not even that'
	run env LD_PRELOAD="$so" ./loads 1 libdeep.so; is 0; silent
}

t_tls() {
	local i list=
	for i in 1 2 3; do
		printf '__thread char big%d[1 << 16] __attribute__((tls_model("initial-exec"))); char *use%d(void) { return big%d; }\n' $i $i $i >tls$i.c
		build gcc -w -shared -fPIC tls$i.c -o "$dir/tls$i.so" || return
		list="$list $dir/tls$i.so"
	done
	printf '%s\n' "open $dir/a.dat" 'map 0' 'store 0 new' 'msync' 'fork' 'store 4096 two' 'exit 0' >orders
	claim 'three libraries with much static TLS beside us'
	local l
	for l in "$so$list" "$list $so"; do
		make_file a.dat o 64K; settings
		run env "${vars[@]}" LD_PRELOAD="$l" sh -c 'exec "$0" <orders' "$poke"; is 0; silent; holds a.dat new; holds a.dat two 4096
	done
	claim 'ours is opened by a program that has used up all but a little of it'
	printf '__thread char some[1024] __attribute__((tls_model("initial-exec"))); char *use(void) { return some; }\n' >some.c
	cat >opens.c <<-'C'
		#include <dlfcn.h>
		#include <stdio.h>
		int main(int argc, char **argv)
		{
			void *a = dlopen(argv[1], RTLD_NOW), *b = dlopen(argv[2], RTLD_NOW);
			return a && b ? puts("fine") < 0 : (puts(dlerror()), 1);
		}
	C
	build gcc -w -shared -fPIC some.c -o "$dir/some.so" && build gcc -w opens.c -ldl -o "$dir/opens" || return
	run ./opens "$dir/some.so" "$so"; is 0; says fine; silent
}

each_user t_sanitizers
each t_durability
each_user t_apart
each_user t_tls
exit $failed
