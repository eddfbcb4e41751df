// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/peers/peer_cublas.h"

#include <dlfcn.h>

#include <cstdlib>
#include <vector>

#include "cgp/base/error.h"
#include "cgp/base/text.h"

namespace cgp::measure {
namespace {

// Values from cuBLAS's public interface (library_types.h, cublas_api.h).
constexpr int kReal32F = 0, kReal16F = 2, kReal16BF = 14;
constexpr int kCompute32F = 68, kDefaultAlgorithm = -1;
constexpr int kNoTranspose = 0, kTranspose = 1;

int data_type(DType t) {
  switch (t) {
    case DType::f16:
      return kReal16F;
    case DType::bf16:
      return kReal16BF;
    case DType::f32:
      return kReal32F;
    default:
      throw Unsupported(text::cat("the cuBLAS peer measures f16, bf16 and f32, not ", name(t)));
  }
}

}  // namespace

struct Cublas::Impl {
  void* library = nullptr;
  void* handle = nullptr;
  int (*create)(void**) = nullptr;
  int (*destroy)(void*) = nullptr;
  int (*set_stream)(void*, void*) = nullptr;
  int (*get_version)(void*, int*) = nullptr;
  int (*set_workspace)(void*, void*, std::size_t) = nullptr;
  int (*gemm_ex)(void*, int, int, int, int, int, const void*, const void*, int, int, const void*, int, int,
                 const void*, void*, int, int, int, int) = nullptr;

  template <class F>
  void bind(F& f, const char* symbol) {
    f = reinterpret_cast<F>(dlsym(library, symbol));
    if (!f) throw Unsupported(text::cat("libcublas has no ", symbol));
  }
};

Cublas::Cublas() : impl_(std::make_unique<Impl>()) {
  std::vector<std::string> names{"libcublas.so.13", "libcublas.so.12", "libcublas.so",
                                 "/usr/local/cuda/lib64/libcublas.so"};
  if (const char* path = std::getenv("CGP_CUBLAS_LIB")) names = {path};
  for (const auto& n : names)
    if ((impl_->library = dlopen(n.c_str(), RTLD_NOW | RTLD_LOCAL))) break;
  if (!impl_->library)
    throw Unsupported({"cuBLAS is not installed, so it cannot be measured",
                       {},
                       dlerror(),
                       "set CGP_CUBLAS_LIB to libcublas.so"});
  impl_->bind(impl_->create, "cublasCreate_v2");
  impl_->bind(impl_->destroy, "cublasDestroy_v2");
  impl_->bind(impl_->set_stream, "cublasSetStream_v2");
  impl_->bind(impl_->get_version, "cublasGetVersion_v2");
  impl_->bind(impl_->gemm_ex, "cublasGemmEx");
  if (int status = impl_->create(&impl_->handle))
    throw Error({"cuBLAS could not be initialised", "cublasCreate", text::cat("status ", status), {}});
}

Cublas::~Cublas() {
  if (impl_->handle) impl_->destroy(impl_->handle);
}

int Cublas::version() const {
  int v = 0;
  impl_->get_version(impl_->handle, &v);
  return v;
}

void Cublas::gemm(void* stream, const CublasGemm& g, std::uint64_t a, std::uint64_t b, std::uint64_t c) {
  impl_->set_stream(impl_->handle, stream);
  // cuBLAS is column-major: the row-major product is the column-major C' = op(B)' op(A)' with m and n
  // exchanged.
  const int type = data_type(g.type);
  const auto pointer = [](std::uint64_t p) { return reinterpret_cast<void*>(p); };
  const int status = impl_->gemm_ex(impl_->handle, g.trans_b ? kTranspose : kNoTranspose,
                                    g.trans_a ? kTranspose : kNoTranspose, int(g.n), int(g.m), int(g.k),
                                    &g.alpha, pointer(b), type, int(g.ldb), pointer(a), type, int(g.lda),
                                    &g.beta, pointer(c), type, int(g.ldc), kCompute32F, kDefaultAlgorithm);
  if (status) throw Error({"a cuBLAS product failed", "cublasGemmEx", text::cat("status ", status), {}});
}

}  // namespace cgp::measure
