// SPDX-License-Identifier: Apache-2.0
// Byte work: word count with a state machine, base64, run lengths, and a naive substring search.
extern "C" __global__ void strings(const char* text, int n, int* words, char* b64, int* found, const char* pat, int m) {
  int t = threadIdx.x, seg = (n + blockDim.x - 1) / blockDim.x, lo = t * seg, hi = min(n, lo + seg), c = 0;
  for (int i = lo; i < hi; ++i) {
    bool sp = text[i] == ' ' || text[i] == '\n', before = i == 0 || text[i - 1] == ' ' || text[i - 1] == '\n';
    c += !sp && before;
  }
  atomicAdd(words, c);
  const char* abc = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (int g = t; g < n / 3; g += blockDim.x) {
    unsigned v = (unsigned char)text[3 * g] << 16 | (unsigned char)text[3 * g + 1] << 8 | (unsigned char)text[3 * g + 2];
    for (int k = 0; k < 4; ++k) b64[4 * g + k] = abc[v >> (18 - 6 * k) & 63];
  }
  for (int i = t; i + m <= n; i += blockDim.x) {
    int k = 0;
    while (k < m && text[i + k] == pat[k]) ++k;
    if (k == m) atomicMin(found, i);
  }
}
