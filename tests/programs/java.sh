#!/bin/bash
# SPDX-License-Identifier: MIT
# A Java machine: it takes SIGSEGV for null checks, safepoints and stack overflows, and SIGBUS for what is beyond the end.
. "$(dirname "$0")/lib.sh"
java=$(ls -d /usr/lib/jvm/java-17-openjdk-*/bin/java 2>/dev/null)
[ -n "$java" ] || skip 'no java here (openjdk-17-jre-headless)'

t_mapped() {
	run "$java" -Xmx64m "$src/mapped.java" "$(count 40000 1000000)"
	bytes java.dat
}
same mapped
# Everything compiled at once, other collectors: more of the machine's own faults.
t_compiled() {
	run "$java" -Xmx64m -Xcomp -XX:TieredStopAtLevel=1 -XX:+UseParallelGC "$src/mapped.java" 20000
	bytes java.dat
}
[ -z "${full:-}" ] || same compiled
done_same
