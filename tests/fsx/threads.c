/* SPDX-License-Identifier: MIT */
#include "fsx.h"
int threads_main(void)
{
	return 0;
}
