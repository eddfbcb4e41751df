// SPDX-License-Identifier: Apache-2.0
// Recursive quicksort in local memory, a thread per segment, and a recursive tree walk with an explicit struct stack.
__device__ __noinline__ void qs(int* a, int lo, int hi, int depth) {
  if (lo >= hi || depth > 40) return;
  int p = a[(lo + hi) / 2], i = lo, j = hi;
  while (i <= j) {
    while (a[i] < p) ++i;
    while (a[j] > p) --j;
    if (i <= j) {
      int t = a[i];
      a[i++] = a[j];
      a[j--] = t;
    }
  }
  qs(a, lo, j, depth + 1);
  qs(a, i, hi, depth + 1);
}
extern "C" __global__ void quicksort(int* data, int n) {
  int a[24];
  int* mine = data + threadIdx.x * n;
  for (int i = 0; i < n; ++i) a[i] = mine[i];
  qs(a, 0, n - 1, 0);
  for (int i = 0; i < n; ++i) mine[i] = a[i];
}
struct Node {
  int left, right, value;
};
struct Frame {
  int node, depth;
};
extern "C" __global__ void tree_walk(const Node* tree, int root, int* out) {
  Frame st[32];
  int sp = 0, sum = 0;
  st[sp++] = {root, (int)threadIdx.x};
  while (sp > 0) {
    Frame f = st[--sp];
    sum += tree[f.node].value * (f.depth + 1);
    if (tree[f.node].right >= 0) st[sp++] = {tree[f.node].right, f.depth + 1};
    if (tree[f.node].left >= 0 && (f.depth & 3) != 3) st[sp++] = {tree[f.node].left, f.depth + 1};
  }
  out[threadIdx.x] = sum;
}
