#!/bin/bash
# SPDX-License-Identifier: MIT
# Perl's ways to map a file: File::Map and Sys::Mmap tie a scalar to it.
. "$(dirname "$0")/lib.sh"
for module in File::Map Sys::Mmap; do
	perl -M$module -e 1 2>/dev/null || skip "no $module (for make programs)"
done

t_file_map() {
	plain truncate -s 100000 f
	run perl -MFile::Map=:all -e 'map_file my $m, "f", "+<"; substr($m, 5000, 5) = "store"; sync $m;
		substr($m, $_ * 1000, 4) = sprintf "%04d", $_ for 1 .. 99; my $n = $m =~ tr/0-9//; print "$n\n"; advise $m, "random";
		open my $f, "+<", "f"; seek $f, 5000, 0; read $f, my $b, 10; print "$b\n"; seek $f, 7000, 0; print $f "written"; close $f;
		print substr($m, 7000, 7), "\n"; unmap $m'
	run perl -MFile::Map=:all -e 'map_file my $m, "f", "<", 4096, 50000; print length $m, " ", $m =~ tr/0-9//, "\n"'
	bytes f
}
t_sys_mmap() {
	plain truncate -s 100000 f
	run perl -MSys::Mmap -e 'open F, "+<", "f" or die; mmap $m, 0, PROT_READ | PROT_WRITE, MAP_SHARED, F or die; close F;
		substr($m, 99990, 10) = "0123456789"; substr($m, 0, 3) = "abc"; if (!fork) { substr($m, 4096, 5) = "child"; exit 0 }
		wait; print substr($m, 4096, 5), " $?\n"; munmap $m or die'
	bytes f
}
same file_map
same sys_mmap
done_same
