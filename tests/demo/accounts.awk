# SPDX-License-Identifier: MIT
# Moves money between 1000 accounts, for ever: taken from one, and a moment later given to another.
BEGIN {
	for (;;) {
		account[int(rand() * 1000)]--
		log_of[n++ % 5000] = "transfer " n
		account[int(rand() * 1000)]++
	}
}
