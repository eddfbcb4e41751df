// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/peers/peer_cblas.h"

#include <dlfcn.h>

#include <cstdlib>

#include "cgp/base/error.h"
#include "cgp/base/text.h"

namespace cgp::measure {
namespace {

// Values of CBLAS's public interface.
constexpr int kRowMajor = 101, kNoTranspose = 111, kTranspose = 112;

template <class Integer>
void call(void* sgemm, int ta, int tb, std::int64_t m, std::int64_t n, std::int64_t k, float alpha,
          const float* a, std::int64_t lda, const float* b, std::int64_t ldb, float beta, float* c,
          std::int64_t ldc) {
  using Function = void (*)(int, int, int, Integer, Integer, Integer, float, const float*, Integer,
                            const float*, Integer, float, float*, Integer);
  reinterpret_cast<Function>(sgemm)(kRowMajor, ta, tb, Integer(m), Integer(n), Integer(k), alpha, a,
                                    Integer(lda), b, Integer(ldb), beta, c, Integer(ldc));
}

std::vector<std::string> one_of(const char* variable, const char* library) {
  const char* named = std::getenv(variable);
  return {named && *named ? named : library};
}

}  // namespace

std::vector<std::string> Cblas::openblas() { return one_of("CGP_OPENBLAS_LIB", "libopenblas.so.0"); }
std::vector<std::string> Cblas::blis() { return one_of("CGP_BLIS_LIB", "libblis.so.4"); }

Cblas::Cblas(const std::vector<std::string>& libraries) {
  for (const auto& file : libraries) {
    library_ = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library_) continue;
    for (const auto& [prefix, suffix] :
         {std::pair{"", ""}, std::pair{"", "64_"}, std::pair{"scipy_", ""}, std::pair{"scipy_", "64_"}}) {
      prefix_ = prefix, suffix_ = suffix;
      sgemm_ = symbol("cblas_sgemm");
      if (!sgemm_) continue;
      name_ = file;
      if (void* f = symbol("openblas_get_config"))
        name_ += text::cat(" (", reinterpret_cast<const char* (*)()>(f)(), ")");
      return;
    }
    dlclose(library_);
  }
  throw Unsupported(ErrorText{"no library with cblas_sgemm",
                              {},
                              text::cat("looked for ", text::join(libraries, ", ")),
                              "apt install libopenblas0-pthread, or name one with CGP_OPENBLAS_LIB"});
}

void* Cblas::symbol(const std::string& plain) const {
  return dlsym(library_, (prefix_ + plain + suffix_).c_str());
}

void Cblas::gemm(bool transpose_a, bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k,
                 float alpha, const float* a, std::int64_t lda, const float* b, std::int64_t ldb, float beta,
                 float* c, std::int64_t ldc) const {
  const int ta = transpose_a ? kTranspose : kNoTranspose, tb = transpose_b ? kTranspose : kNoTranspose;
  (suffix_.empty() ? call<int> : call<std::int64_t>)(sgemm_, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c,
                                                     ldc);
}

bool Cblas::set_threads(int n) const {
  if (void* f = symbol("openblas_set_num_threads")) {
    reinterpret_cast<void (*)(int)>(f)(n);
    return true;
  }
  if (void* f = dlsym(library_, "bli_thread_set_num_threads")) {
    reinterpret_cast<void (*)(std::int64_t)>(f)(n);
    return true;
  }
  return false;
}

}  // namespace cgp::measure
