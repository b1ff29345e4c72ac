# SPDX-License-Identifier: MIT
# "fill ROUND COUNT": make every value of x that of ROUND. In between it waits for the next line, at rest.
$1 == "fill" {
	for (i = 0; i < $3; i++)
		x[i] = $2 ":" i * $2
	for (i = 0; i < $3; i += 3) {
		delete x[i]
		x[i] = $2 ":" i * $2
	}
	round = $2
	print "done", $2
	fflush()
}
