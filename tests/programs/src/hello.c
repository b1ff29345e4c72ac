// SPDX-License-Identifier: MIT
#include <stdio.h>
int foo(int);
int main()
{
	printf("%d\n", foo(3));
	return 0;
}
