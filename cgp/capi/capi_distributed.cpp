// SPDX-License-Identifier: Apache-2.0
// The C interface of collectives and of products that communicate.
#include <cstring>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/capi/handles.h"
#include "cgp/capi/tensor.h"
#include "cgp/kernels/collective/collective.h"
#include "cgp/kernels/gemm_collective/gemm_collective.h"

struct cgp_communicator {
  cgp::kernels::Communicator all;
  int rank = 0;
};

namespace cgp::capi {
namespace {

std::unique_ptr<cgp_communicator> communicator(cgp_device& device, int rank, int size,
                                               cgp_all_gather_bytes all_gather, void* user,
                                               const cgp_communicator_options& o) {
  kernels::Processes p;
  p.rank = rank, p.size = size;
  p.all_gather = [=](std::span<const std::byte> own) {
    std::vector<std::byte> all(own.size() * std::size_t(size));
    if (all_gather(user, own.data(), own.size(), all.data()))
      throw Error("communicator_new: all_gather reported a failure");
    std::vector<std::vector<std::byte>> out;
    for (int r = 0; r < size; ++r) {
      const auto* from = all.data() + std::size_t(r) * own.size();
      out.emplace_back(from, from + own.size());
    }
    return out;
  };
  if (o.on_lost) p.on_lost = [lost = o.on_lost, given = o.user](int r) { lost(given, r); };
  using Devices = kernels::Communicator::Devices;
  return std::make_unique<cgp_communicator>(
      kernels::Communicator(device.device, std::move(p), o.staging_bytes ? o.staging_bytes : 64ull << 20,
                            o.may_share ? Devices::may_repeat : Devices::different),
      rank);
}

// f(x, y) of contiguous arrays.
template <class F>
cgp_status two(cgp_stream* s, const cgp_communicator* all, const char* op, const cgp_tensor* x,
               const cgp_tensor* y, F f) {
  return guarded([&] {
    require(s, "s"), require(all, "all");
    const Tensor from(x, op, "x"), to(y, op, "y");
    from.expect_contiguous(), to.expect_contiguous();
    f(from.view(*s), to.view(*s, true));
  });
}
cgp_status product(cgp_stream* s, const cgp_communicator* all, const char* op, const cgp_tensor* x,
                   const cgp_tensor* weight, const cgp_tensor* y, bool gathers,
                   void (*run)(runtime::Stream&, const kernels::Communicator&, int,
                               const kernels::GemmCollective&)) {
  return guarded([&] {
    require(s, "s"), require(all, "all");
    const Tensor a(x, op, "x"), w(weight, op, "weight"), c(y, op, "y");
    for (const Tensor* t : {&a, &w, &c}) t->expect_contiguous();
    a.expect_rank(2, CGP_MAX_RANK), w.expect_rank(2, 2), c.expect_rank(2, CGP_MAX_RANK);
    kernels::GemmCollective p;
    p.type = a.dtype(), p.n = w.size(0), p.k = w.size(1);
    if (a.size(-1) != p.k) a.fail(text::cat("its last dimension must be ", p.k, ", as weight has columns"));
    if (c.size(-1) != p.n) c.fail(text::cat("its last dimension must be ", p.n, ", as weight has rows"));
    p.m = a.leading(1).count * (gathers ? std::uint64_t(all->all.size()) : 1);
    p.x = a.view(*s), p.weight = w.view(*s), p.y = c.view(*s, true);
    run(s->stream, all->all, all->rank, p);
  });
}

}  // namespace
}  // namespace cgp::capi

using cgp::capi::guarded;
using cgp::capi::require;
namespace kernels = cgp::kernels;

cgp_status cgp_communicator_new(cgp_device* device, int32_t rank, int32_t size,
                                cgp_all_gather_bytes all_gather, void* user,
                                const cgp_communicator_options* options, cgp_communicator** out) {
  return guarded([&] {
    require(device, "device"), require(reinterpret_cast<const void*>(all_gather), "all_gather"),
        require(out, "out");
    const auto o = cgp::capi::known(options, cgp_communicator_options{}, "cgp_communicator_options");
    *out = cgp::capi::communicator(*device, rank, size, all_gather, user, o).release();
  });
}
void cgp_communicator_free(cgp_communicator* all) { delete all; }

cgp_status cgp_all_reduce(cgp_stream* s, const cgp_communicator* all, const cgp_tensor* x,
                          const cgp_tensor* y) {
  return cgp::capi::two(s, all, "all_reduce", x, y, [&](const kernels::View& from, const kernels::View& to) {
    kernels::all_reduce(s->stream, all->all, all->rank, from, to);
  });
}
cgp_status cgp_all_gather(cgp_stream* s, const cgp_communicator* all, const cgp_tensor* x,
                          const cgp_tensor* y) {
  return cgp::capi::two(s, all, "all_gather", x, y, [&](const kernels::View& from, const kernels::View& to) {
    kernels::all_gather(s->stream, all->all, all->rank, from, to);
  });
}
cgp_status cgp_reduce_scatter(cgp_stream* s, const cgp_communicator* all, const cgp_tensor* x,
                              const cgp_tensor* y) {
  return cgp::capi::two(s, all, "reduce_scatter", x, y,
                        [&](const kernels::View& from, const kernels::View& to) {
                          kernels::reduce_scatter(s->stream, all->all, all->rank, from, to);
                        });
}
cgp_status cgp_all_to_all(cgp_stream* s, const cgp_communicator* all, const cgp_tensor* x,
                          const cgp_tensor* y) {
  return cgp::capi::two(s, all, "all_to_all", x, y, [&](const kernels::View& from, const kernels::View& to) {
    kernels::all_to_all(s->stream, all->all, all->rank, from, to);
  });
}
cgp_status cgp_broadcast(cgp_stream* s, const cgp_communicator* all, int32_t root, const cgp_tensor* x) {
  return cgp::capi::two(s, all, "broadcast", x, x, [&](const kernels::View&, const kernels::View& to) {
    kernels::broadcast(s->stream, all->all, all->rank, root, to);
  });
}
cgp_status cgp_barrier(cgp_stream* s, const cgp_communicator* all) {
  return guarded([&] {
    require(s, "s"), require(all, "all");
    kernels::barrier(s->stream, all->all, all->rank);
  });
}
cgp_status cgp_all_gather_gemm(cgp_stream* s, const cgp_communicator* all, const cgp_tensor* x,
                               const cgp_tensor* weight, const cgp_tensor* y) {
  return cgp::capi::product(s, all, "all_gather_gemm", x, weight, y, true, kernels::all_gather_gemm);
}
cgp_status cgp_gemm_reduce_scatter(cgp_stream* s, const cgp_communicator* all, const cgp_tensor* x,
                                   const cgp_tensor* weight, const cgp_tensor* y) {
  return cgp::capi::product(s, all, "gemm_reduce_scatter", x, weight, y, false, kernels::gemm_reduce_scatter);
}
cgp_status cgp_gemm_all_reduce(cgp_stream* s, const cgp_communicator* all, const cgp_tensor* x,
                               const cgp_tensor* weight, const cgp_tensor* y) {
  return cgp::capi::product(s, all, "gemm_all_reduce", x, weight, y, false, kernels::gemm_all_reduce);
}
