#!/bin/bash
# SPDX-License-Identifier: MIT
# gdbm from Perl, without Python.
. "$(dirname "$0")/lib.sh"
need perl

t_gdbm() {
	run perl -MGDBM_File -e 'tie %h, "GDBM_File", "h.gdbm", GDBM_WRCREAT, 0644 or die $!;
		$h{$_} = "value $_ " x ($_ % 50) for 1 .. 2000; delete $h{$_ * 3} for 1 .. 600; print scalar(keys %h), "\n"'
	plain perl -MGDBM_File -e 'tie %h, "GDBM_File", "h.gdbm", GDBM_READER, 0644 or die $!;
		print scalar(keys %h), " $h{1000}\n"'
	bytes h.gdbm
}
same gdbm
done_same
