#!/bin/bash
# SPDX-License-Identifier: MIT
# A seccomp filter that refuses what only we ask for, as man-db has one.
. "$(dirname "$0")/lib.sh"

t_stores() { run "$src/sandbox_load"; }
same stores
lib_set=TXMAP_LOAD=lazy
same stores
done_same
