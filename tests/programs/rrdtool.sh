#!/bin/bash
# SPDX-License-Identifier: MIT
# rrdtool: one mapping an update, and never an msync: the stores are to be in the file after munmap.
. "$(dirname "$0")/lib.sh"
need rrdtool

create='create k.rrd --start 1000000000 --step 60 DS:a:GAUGE:120:U:U DS:b:COUNTER:120:0:U
	RRA:AVERAGE:0.5:1:5000 RRA:MAX:0.5:10:500'
update() { # FROM TO: lines of commands for rrdtool -
	for ((i = $1; i <= $2; i++)); do
		echo "update k.rrd $((1000000000 + 60 * i)):$((i * 37 % 101)).5:$((i * i % 100000))"
	done
}
# shellcheck disable=SC2086
(cd "$work/bin" && rrdtool $create) || exit 1
t_updates() {
	# A new archive starts at a random row: only one of two may be compared by its bytes.
	# shellcheck disable=SC2086 # a list of options
	run rrdtool ${create/k.rrd/new.rrd}
	plain rrdtool dump new.rrd | sha256sum
	plain rrdtool update new.rrd 1000000060:1:1
	plain cp "$work/bin/k.rrd" .
	bytes k.rrd
	# One process each; then all by one process.
	for i in 1 2 3 4 5; do run rrdtool update k.rrd $((1000000000 + 60 * i)):$i:$((i * 7)); done
	bytes k.rrd
	update 6 "$(count 100 2000)" | run rrdtool - | sed 's/u:.*//'
	bytes k.rrd
	run rrdtool dump k.rrd | sha256sum
	plain rrdtool dump k.rrd | sha256sum
	run rrdtool fetch k.rrd MAX --start 1000000000 --end 1000003600
	run rrdtool tune k.rrd --heartbeat a:300
	run rrdtool resize k.rrd 0 GROW 100
	run sh -c 'rrdtool dump k.rrd k.xml && rrdtool restore k.xml l.rrd'
	bytes k.rrd resize.rrd
	plain rrdtool dump l.rrd | sha256sum
}
same updates
done_same
