#!/bin/bash
# SPDX-License-Identifier: MIT
# Started in odd ways, and in company: by the loader, as libc itself, opened by a program, with allocators and other
# preloads before and after us. What ran without us runs with us, and the file is managed.
. "$(dirname "$0")/lib.sh"

orders() {
	make_file a.dat o 64K
	printf '%s\n' "open $dir/a.dat" 'map 0' 'store 0 new' 'msync' 'read 0 3' 'unmap' 'close' 'exit 0' >orders
}
fine=$'ok\nok\nok\nok\nnew\nok\nok'
preloads() { # LIST CMD...: with that for LD_PRELOAD
	local list=$1
	shift
	settings
	run env "${vars[@]}" LD_PRELOAD="$list" "$@"
}
works() { # the file was managed, by whoever said so
	is 0
	[ "$out" = "$fine" ] || bad 'it says something else'
	holds a.dat new
	errs 'a.dat: managed by rule'
}

t_loader() {
	set=log=info
	orders
	local ld libc
	ld=$(sed -n 's/.*: \(.*ld-linux[^]]*\)].*/\1/p' <<<"$(readelf -lW "$poke")")
	libc=$(ldd "$poke" | sed -n 's/.*libc\.so\.6 => \([^ ]*\) .*/\1/p')
	[ -x "$ld" ] && [ -e "$libc" ] || lib_die "no loader ($ld) or libc ($libc)"
	claim 'libc as a program'
	under "$libc"; is 0; says 'GNU C Library'; silent
	claim 'the loader lists'
	under "$ld" --list "$poke"; is 0; says 'libc.so.6'; silent
	under ldd "$poke"; is 0; says 'libc.so.6'; silent
	claim 'the loader verifies, and helps'
	under "$ld" --verify "$poke"; is 0; silent
	under "$ld" --help; is 0; silent
	claim 'the loader runs'
	under sh -c 'exec "$@" <orders' sh "$ld" "$poke"; works
	orders
	claim 'the loader is told to preload'
	settings
	run env "${vars[@]:1}" sh -c 'exec "$@" <orders' sh "$ld" --preload "$so" "$poke"; works
	claim 'bound at once, and with the loader speaking'
	orders
	under env LD_BIND_NOW=1 sh -c 'exec "$@" <orders' sh "$poke"; works
	orders
	under env LD_DEBUG=libs LD_DEBUG_OUTPUT="$dir/ld" sh -c 'exec "$@" <orders' sh "$poke"; works
	rm -f ld.*
}

t_opened() {
	set=log=info
	command -v python3 >/dev/null || return
	cat >"$work/bin/opens.py" <<'PY'
import ctypes, mmap, os, sys
for so in sys.argv[2:]:
    for i in range(3): ctypes.CDLL(so)
fd = os.open(sys.argv[1], os.O_RDWR); m = mmap.mmap(fd, 0); m[0:3] = b"new"
libc = ctypes.CDLL(None); os.close(fd); print("fine")
PY
	claim 'a program that opens it, and has it not preloaded: nothing is managed'
	make_file a.dat o 8192
	settings
	run env "${vars[@]:1}" python3 "$work/bin/opens.py" "$dir/a.dat" "$so"
	is 0; says fine; quiet 'managed by rule'; holds a.dat new
	claim 'a program that opens it, by another name, too, and has it preloaded'
	make_file a.dat o 8192
	cp "$so" second.so; chmod 755 second.so
	under python3 "$work/bin/opens.py" "$dir/a.dat" "$so" "$dir/second.so" ./second.so
	is 0; says fine; errs 'a.dat: managed by rule'; holds a.dat new
	[ "$(grep -c 'managed by rule' "$err_from")" = 1 ] || bad 'managed twice'
	rm second.so
}

t_company() {
	set=log=info
	local lib found=0
	for lib in libjemalloc.so.2 libtcmalloc_minimal.so.4 libmimalloc.so.2 faketime/libfaketime.so.1 faketime/libfaketimeMT.so.1 \
		libfakeroot/libfakeroot-sysv.so libeatmydata.so libc_malloc_debug.so.0 libSegFault.so; do
		local path
		for path in /usr/lib/*-linux-gnu*/$lib /lib/*-linux-gnu*/$lib; do [ ! -e "$path" ] || break; done
		[ -e "$path" ] || continue
		found=$((found + 1))
		local list
		for list in "$so $path" "$path $so" "$so:$path:$so"; do
			claim "LD_PRELOAD=$list"
			orders
			preloads "$list" sh -c 'exec "$0" <orders' "$poke"; works
			preloads "$list" /bin/true; is 0; silent
			command -v python3 >/dev/null || continue
			make_file a.dat o 8192
			preloads "$list" python3 -c "
import mmap, os, threading
fd = os.open('$dir/a.dat', os.O_RDWR); m = mmap.mmap(fd, 0)
def f(i):
    for k in range(200): m[i * 100 + k % 100] = k % 256; x = bytearray(100000)
t = [threading.Thread(target=f, args=(i,)) for i in range(4)]
[x.start() for x in t]; [x.join() for x in t]
m[0:3] = b'new'; m.flush(); pid = os.fork()
if not pid: m[3:6] = b'two'; os._exit(0)
os.waitpid(pid, 0); print(os.pread(fd, 6, 0))"
			is 0; says "b'newtwo'"; errs 'a.dat: managed by rule'; holds a.dat newtwo
		done
	done
	[ "$found" -gt 0 ] || echo 'no allocator or other preload is installed here'
	command -v fakeroot >/dev/null && command -v faketime >/dev/null && [ "$who" = self ] || return
	claim 'fakeroot and faketime around it'
	orders
	settings
	run env "${vars[@]}" fakeroot faketime -f '-1d' sh -c 'exec "$0" <orders' "$poke"; works
}

each_user t_loader
each_user t_opened
each t_company
exit $failed
