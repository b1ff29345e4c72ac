/* SPDX-License-Identifier: MIT */
/* What the fuzzers share. Each is one file that libFuzzer calls with bytes; what must not be ends the process. */
#ifndef FUZZ_H
#define FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *in, size_t len);
int LLVMFuzzerInitialize(int *argc, char ***argv);

/* A claim that must hold, whatever the bytes are. */
#define CLAIM(ok)                                                                                            \
	do {                                                                                                 \
		if (!(ok)) {                                                                                 \
			(void)fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #ok);               \
			abort();                                                                             \
		}                                                                                            \
	} while (0)

#endif
