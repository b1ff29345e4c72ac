#!/bin/bash
# SPDX-License-Identifier: MIT
# The file gets other names, or none, while it is mapped: what was committed is never lost without a word.
. "$(dirname "$0")/lib.sh"

begin() { # SETTINGS...: a.dat with a commit "one", and "bad" that is not committed
	set="$*"
	rm -f ./* .[!.]* 2>/dev/null
	make_file a.dat x 64K
	start
	order "open $dir/a.dat" ok; order 'map 0' ok
	order 'store 0 one' ok; order msync ok; order 'store 4096 bad' ok
}
only() { # NAMES: nothing else is there
	[ "$(ls -A | xargs)" = "$*" ] || bad "there is: $(ls -A | xargs)"
}

t_rename_by_itself() {
	claim 'renamed by the program: the journal goes along, and commits go on'
	begin
	order "rename $dir/a.dat $dir/b.dat" ok
	order 'store 0 two' ok; order msync ok; holds b.dat two
	txmap status --json "$pid"; says 'b\.dat'
	killed
	only '.b.dat.txmap b.dat'
	txmap check b.dat; is 1; says 'needs recovery'
	txmap recover b.dat; is 0; holds b.dat two; holds b.dat xxx 8192
	only b.dat

	claim 'a temporary file that is mapped, filled and renamed onto the real one'
	rm -f ./*; make_file a.dat o 64K; make_file tmp x 64K
	start
	order "open $dir/tmp" ok; order 'map 0' ok
	order 'store 0 fresh' ok; order msync ok
	order "rename $dir/tmp $dir/a.dat" ok
	holds a.dat fresh
	order 'store 0 again' ok; order msync ok; order 'store 8192 lost' ok
	killed
	holds a.dat again
	txmap recover a.dat; is 0; holds a.dat again; holds a.dat xxxx 8192
	only a.dat
	claim 'the same with the old one mapped, too'
	make_file a.dat o 64K; make_file tmp x 64K
	start old; order "open $dir/a.dat" ok; order 'map 0' ok; order 'store 0 old' ok; order msync ok
	start new; order "open $dir/tmp" ok; order 'map 0' ok; order 'store 0 new' ok; order msync ok
	order "rename $dir/tmp $dir/a.dat" 'ok|E[A-Z]+'
	local renamed=$answer
	order 'store 0 NEW' ok; order msync 'ok|E[A-Z]+'
	local synced=$answer
	use old; order 'store 0 OLD' ok; order msync 'ok|E[A-Z]+'
	stop
	use new; killed
	[ "$renamed" != ok ] || [ "$synced" != ok ] || { txmap recover a.dat; is 0; holds a.dat NEW; }
	rm -f .a.dat.txmap .tmp.txmap
}

t_rename_before_map() {
	claim 'a temporary file that no rule matches, renamed to a name that one does, then mapped'
	rm -f ./*; make_file a.dat o 64K; make_file tmp x 64K
	glob="$dir/*.dat" set=commit=msync
	start
	order "open $dir/tmp" ok
	order "rename $dir/tmp $dir/a.dat" ok
	order 'map 0' ok; order 'store 0 fresh' ok
	holds a.dat xxxxx
	order msync ok
	holds a.dat fresh
	stop
	unset glob
}

t_rename_by_others() {
	claim 'renamed by somebody else: commits go on, and after kill -9 nothing is lost without a word'
	begin
	mv a.dat b.dat
	order 'store 0 two' ok; order msync ok; holds b.dat two
	killed
	# the journal has the old name, and is the only one that may hold the commit
	holds b.dat two
	txmap check b.dat; is 0
	claim 'and it does not go into another file that took the name'
	make_file a.dat y 64K
	[ ! -e .a.dat.txmap ] || { txmap recover a.dat; is 1; errs 'another file'; }
	holds a.dat yyyy; holds b.dat two
	start
	order "open $dir/a.dat" ok; order 'map 0' 'EUCLEAN|ok'
	[ "$answer" = ok ] || errs 'another file'
	stop
	claim 'renamed back, the journal is found'
	rm -f a.dat; mv b.dat a.dat
	txmap recover a.dat; is 0; holds a.dat two; only a.dat

	claim 'replaced by rename, as editors do: the program keeps its file, the new one is not touched'
	begin commit=msync,exit
	make_file new y 64K; mv new a.dat
	order 'store 0 two' ok
	order msync ok; order 'load 0 3' two
	holds a.dat yyyy
	order 'store 0 end' ok
	stop
	holds a.dat yyyy
	rm -f .a.dat.txmap
	claim 'a new program gets the new one'
	begin commit=msync
	make_file new y 64K; mv new a.dat
	start other; order "open $dir/a.dat" ok; order 'map 0' 'ok|E[A-Z]+'
	if [ "$answer" = ok ]; then
		order 'load 0 4' yyyy; order 'store 0 NEW' ok; order msync 'ok'
		use one; order 'store 0 old' ok; order msync 'ok|E[A-Z]+'
		killed
		use other; order 'store 4096 MORE' ok; order msync ok; killed
		txmap recover a.dat; is 0; holds a.dat NEWy; holds a.dat MORE 4096
	else
		errs "a.dat: .*E[A-Z]+"
		stop; use one; stop; holds a.dat yyyy
	fi
	rm -f .a.dat.txmap
}

t_unlinked() {
	claim 'unlinked by the program while it is mapped: it goes on, and nothing stays'
	begin
	order "unlink $dir/a.dat" ok
	order 'store 0 two' ok; order msync ok; order 'load 0 3' two; order 'read 0 3' two
	stop; is 0
	only ''
	claim 'unlinked by somebody else'
	begin
	rm a.dat
	order 'store 0 two' ok; order msync ok; order 'load 0 3' two
	stop; is 0
	only ''
	claim 'unlinked, and kill -9; then a new file of this name'
	begin
	rm a.dat
	order 'store 0 two' ok; order msync ok
	killed
	make_file a.dat y 64K
	start
	order "open $dir/a.dat" ok; order 'map 0' 'ok|EUCLEAN'
	if [ "$answer" = ok ]; then order 'load 0 4' yyyy; else errs 'a.dat: .*another file'; fi
	holds a.dat yyyy
	stop
	rm -f .a.dat.txmap
	claim 'the journal is removed by somebody'
	begin
	rm .a.dat.txmap
	order 'store 0 two' ok; order msync ok; holds a.dat two; errs 'journal .*removed'
	order 'store 0 bad' ok
	killed
	txmap recover a.dat; is 0; holds a.dat two
	claim 'the directory is gone with all that is in it'
	mkdir sub; make_file sub/s.dat x 64K; [ "$who" != ordinary ] || chown 65534 sub
	start; order "open $dir/sub/s.dat" ok; order 'map 0' ok; order 'store 0 one' ok; order msync ok
	rm -rf sub
	order 'store 0 two' ok; order msync 'ok|E[A-Z]+'; order 'load 0 3' two
	[ "$answer" != ok ] || errs 's.dat'
	stop
}

t_links() {
	claim 'a symbolic link is its file'
	rm -f ./* .[!.]* 2>/dev/null
	mkdir real; make_file real/a.dat x 64K; [ "$who" != ordinary ] || chown 65534 real
	ln -s real/a.dat l.dat; ln -s real ldir
	glob="$dir/real/*"
	start; order "open $dir/l.dat" ok; order 'map 0' ok; order 'store 0 one' ok
	txmap commit --path "$dir/ldir/a.dat"; is 0; holds real/a.dat one
	txmap commit --path "$dir/l.dat"; is 0
	txmap commit --path 'ldir/*.dat'; is 0
	order msync ok
	killed
	only 'l.dat ldir real'
	txmap check l.dat; is 1; says 'real/a.dat.*needs recovery'
	txmap recover ldir/a.dat; is 0; holds real/a.dat one
	claim 'a link onto the file that is the rule'\''s name'
	glob="$dir/l.dat"
	start; order "open $dir/l.dat" ok; order 'map 0' ok; order 'store 0 two' ok; holds real/a.dat two; stop
	[ ! -s "$err_from" ] || bad 'the glob is on the canonical path: not managed, and no message'
	unset glob

	claim 'a hard link: one file in one process, whichever name comes first'
	ln real/a.dat hard.dat
	start; order "open $dir/hard.dat" ok; order 'map 0' ok; order 'store 0 one' ok
	order "open $dir/real/a.dat" ok; order 'map 0' ok; order 'load 0 3' one
	order 'store 4096 more' ok; order msync ok
	holds hard.dat one; holds real/a.dat more 4096
	claim 'another process by the other name shares it'
	start two; order "open $dir/real/a.dat" ok; order 'map 0' ok; order 'load 0 3' one
	order 'store 8192 TWO' ok
	use one; order 'store 0 ONE' ok; order msync ok; holds hard.dat ONE; holds real/a.dat TWO 8192
	use two
	killed; use one; killed
	claim 'recovered by the other name'
	txmap check hard.dat
	txmap recover hard.dat; txmap recover real/a.dat
	holds hard.dat ONE; holds real/a.dat TWO 8192
	rm -rf ./* .[!.]*
}

t_relatives() {
	claim 'renamed by a forked child: the journal that both have goes along'
	begin
	order fork ok
	order "rename $dir/a.dat $dir/b.dat" ok
	only '.b.dat.txmap b.dat'
	order 'store 0 two' ok; order msync ok; holds b.dat two
	order 'store 0 end' ok
	stop; is 0
	only b.dat; holds b.dat end
	claim 'renamed by a child, and both are killed'
	begin
	order fork ok
	order "rename $dir/a.dat $dir/b.dat" ok
	order 'store 0 two' ok; order msync ok
	pkill -9 -P "$pid"; killed
	txmap check b.dat; txmap recover b.dat; is 0; holds b.dat two
	only b.dat
	claim 'deleted by a child'
	begin
	order fork ok
	order "unlink $dir/a.dat" ok
	only ''
	order 'store 0 two' ok; order msync ok; order 'read 0 3' two
	make_file a.dat y 64K
	order "open $dir/a.dat" ok; order 'map 0' ok; order 'load 0 3' yyy; order 'store 0 new' ok; order msync ok
	stop; is 0
	holds a.dat new; only a.dat
}

t_directories() {
	claim 'a directory above it is renamed, by anybody: the journal is where the file is, and goes with it'
	begin
	mkdir sub; mv a.dat .a.dat.txmap sub/ 2>/dev/null; [ "$who" != ordinary ] || chown 65534 sub
	mv sub dir
	order 'store 0 two' ok; order msync ok; holds dir/a.dat two
	stop; is 0
	only dir
	[ "$(ls -A dir)" = a.dat ] || bad "there is: $(ls -A dir)"
	set="commit=msync"
	start; order "open $dir/dir/a.dat" ok; order 'map 0' ok; order 'store 0 one' ok; order msync ok
	order "rename $dir/dir $dir/sub" ok
	order "unlink $dir/sub/none" ENOENT; order "rename $dir/sub/a.dat $dir/sub/b.dat" ok
	order "rename $dir/sub $dir/dir" ok
	order 'store 0 two' ok; order msync ok
	killed
	[ "$(ls -A dir | xargs)" = '.b.dat.txmap b.dat' ] || bad "there is: $(ls -A dir)"
	txmap recover dir/b.dat; is 0; holds dir/b.dat two
	[ "$(ls -A dir)" = b.dat ] || bad "there is: $(ls -A dir)"

	claim 'deleted by the program, and kill -9: nothing is left, and a new file of that name is a new file'
	start; order "open $dir/dir/b.dat" ok; order 'map 0' ok; order 'store 0 new' ok; order msync ok
	order "unlink $dir/dir/b.dat" ok; order 'store 0 two' ok; order msync ok; order 'load 0 3' two
	killed
	[ -z "$(ls -A dir)" ] || bad "there is: $(ls -A dir)"
	silent
	rm -rf dir
}

each t_rename_by_itself
each t_directories
each t_relatives
each t_rename_before_map
each t_rename_by_others
each t_unlinked
each t_links
exit $failed
