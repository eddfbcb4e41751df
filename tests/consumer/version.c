/* SPDX-License-Identifier: Apache-2.0 */
/* A C program of another project: prints the library's version. */
#include <stdio.h>

#include <cgp/capi/cgp.h>

int main(void) {
  puts(cgp_version());
  return 0;
}
