// SPDX-License-Identifier: Apache-2.0
// Merge of two sorted arrays: every thread finds its diagonal by binary search, then merges 4 elements.
extern "C" __global__ void sort_merge_path(const float* a, int na, const float* b, int nb, float* out) {
  int diag = (blockIdx.x * blockDim.x + threadIdx.x) * 4;
  if (diag >= na + nb) return;
  int lo = max(0, diag - nb), hi = min(diag, na);
  while (lo < hi) {
    int mid = (lo + hi) >> 1;
    if (a[mid] <= b[diag - 1 - mid])
      lo = mid + 1;
    else
      hi = mid;
  }
  int i = lo, j = diag - lo;
  for (int k = 0; k < 4 && diag + k < na + nb; ++k) {
    bool takea = j >= nb || (i < na && a[i] <= b[j]);
    out[diag + k] = takea ? a[i++] : b[j++];
  }
}
