// SPDX-License-Identifier: MIT
int foo(int x)
{
	return x * x;
}
char big[1 << 20] = {1};
