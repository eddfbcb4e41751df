// SPDX-License-Identifier: Apache-2.0
// Recursive descent over an expression: mutual recursion, a struct returned by value.
struct Parse {
  int value, at;
};
__device__ __noinline__ Parse sum(const char* s, int at);
__device__ __noinline__ Parse atom(const char* s, int at) {
  if (s[at] == '(') {
    Parse p = sum(s, at + 1);
    return {p.value, p.at + 1};
  }
  int v = 0;
  bool minus = s[at] == '-';
  at += minus;
  while (s[at] >= '0' && s[at] <= '9') v = v * 10 + s[at++] - '0';
  return {minus ? -v : v, at};
}
__device__ __noinline__ Parse product(const char* s, int at) {
  Parse p = atom(s, at);
  while (s[p.at] == '*') {
    Parse q = atom(s, p.at + 1);
    p = {p.value * q.value, q.at};
  }
  return p;
}
__device__ __noinline__ Parse sum(const char* s, int at) {
  Parse p = product(s, at);
  while (s[p.at] == '+') {
    Parse q = product(s, p.at + 1);
    p = {p.value + q.value, q.at};
  }
  return p;
}
extern "C" __global__ void expressions(const char* text, const int* start, int* out, int n) {
  int i = threadIdx.x;
  if (i < n) out[i] = sum(text, start[i]).value;
}
