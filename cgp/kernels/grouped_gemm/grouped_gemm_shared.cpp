// SPDX-License-Identifier: Apache-2.0
// grouped_gemm for other processes' languages: a shared library with a C interface, for comparisons in the
// process and on the stream of the peer (scripts/compare_grouped_gemm.py). Every call gives 0, or 1 with a
// message from cgp_grouped_error().
#include <cstdio>
#include <cstring>

#include "cgp/kernels/grouped_gemm/grouped_gemm.h"

using namespace cgp;
using namespace cgp::kernels;

namespace {

thread_local std::string last_error;

struct Session {
  runtime::Device device = runtime::Device::open("cuda:0");
  runtime::Stream stream{device};
};
Session& session() {
  static Session s;
  return s;
}

}  // namespace

extern "C" {

const char* cgp_grouped_error() { return last_error.c_str(); }
/// The CUstream that products are queued on, or null.
void* cgp_grouped_stream() try { return session().stream.native_handle(); } catch (const std::exception& e) {
  last_error = e.what();
  return nullptr;
}
struct CgpGrouped {
  std::uint64_t groups, rows, m, n, k, a_rows;
  std::uint64_t a, b, c, ends, index, items;
  std::int32_t f16, form, trans_b, wide;
  std::int32_t bn, stages, buffers, band;  ///< bn 0: the selector's choice; -1: no tensor cores
  std::int32_t taken;
};
int cgp_grouped_run(const CgpGrouped* q) try {
  const GroupedProblem p{.type = q->f16 ? DType::f16 : DType::bf16,
                         .form = GroupedForm(q->form),
                         .trans_b = q->trans_b != 0,
                         .groups = q->groups,
                         .rows = q->rows,
                         .m = q->m,
                         .n = q->n,
                         .k = q->k,
                         .wide_ends = q->wide != 0,
                         .a_rows = q->a_rows};
  const GroupedAddresses at{q->a, q->b, q->c, q->ends, q->index, q->items};
  auto& s = session();
  if (q->bn == 0) {
    grouped_gemm(s.stream, p, at);
    return 0;
  }
  GroupedChoice c = select_grouped_gemm(p, at, s.device.info());
  if (q->bn > 0 && c.kind == GroupedKind::sm90) {
    c.tune = {q->bn, q->stages, q->buffers, q->band, q->taken != 0};
    c.variant = p.form == GroupedForm::depth ? grouped_depth_sm90(p.type, c.tune)
                                             : grouped_rows_sm90(p.type, p.trans_b, c.tune);
  } else if (q->bn < 0) {
    c = {GroupedKind::simt, grouped_simt(p.type, p.form, p.trans_b), {}, {}};
  }
  run_grouped_gemm(s.stream, c, p, at);
  return 0;
} catch (const std::exception& e) {
  last_error = e.what();
  return 1;
}

}  // extern "C"
