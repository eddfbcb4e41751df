// SPDX-License-Identifier: Apache-2.0
#include "cgp/cuda/api.h"

#include <dlfcn.h>

#include <cstdlib>
#include <mutex>
#include <vector>

#include "cgp/base/error.h"
#include "cgp/base/text.h"

namespace cgp::cuda {
namespace {
using text::cat;

enum Need { required, optional };

[[noreturn]] void unusable(const std::string& path, std::string why, std::string hint) {
  throw Unsupported({"CUDA needs NVIDIA's driver library", path, std::move(why), std::move(hint)});
}

void* open_library(const std::string& path) {
  // Never closed: handles and atexit functions of the driver may outlive every owner we could give it.
  if (void* lib = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return lib;
  const char* why = dlerror();
  unusable(path, why ? why : "it cannot be opened",
           "install the NVIDIA driver, or use the emulator (--device emu; Device::open(\"emu\"))");
}

const char* hint_for(CUresult r) {
  switch (r) {
    case kOutOfMemory:
      return "free buffers, or use smaller ones";
    case kInvalidImage:
    case kNoBinaryForGpu:
      return "the code is for another architecture than this device";
    case kInvalidPtx:
      return "the driver's log above names the line";
    case kUnsupportedPtxVersion:
      return "the PTX says a newer .version than this driver knows: update the driver";
    case kIllegalAddress:
    case kMisalignedAddress:
    case kLaunchFailed:
      return "a kernel went wrong and this process has lost the GPU; run it on the emulator, which names the "
             "instruction and the thread";
    case kLaunchOutOfResources:
      return "the block needs more registers than there are: fewer threads, or .maxntid";
    case kCooperativeLaunchTooLarge:
      return "all blocks must be resident at once: a smaller grid";
    case kStreamCaptureUnsupported:
      return "this cannot be recorded: do it before the capture";
    default:
      return "";
  }
}

}  // namespace

std::shared_ptr<const Api> Api::load(const std::string& wanted) {
  const char* env = std::getenv("CGP_LIBCUDA");
  auto api = std::make_shared<Api>();
  api->path = !wanted.empty() ? wanted : env && *env ? env : "libcuda.so.1";
  void* lib = open_library(api->path);
  std::vector<std::string> missing;
#define CGP_DRIVER_FN(name, symbol, since, need, params)                \
  api->name = reinterpret_cast<CUresult(*) params>(dlsym(lib, symbol)); \
  if (need == required && !api->name) missing.push_back(symbol);
#include "cgp/cuda/api.def"
  if (!missing.empty())
    unusable(api->path, cat("it lacks ", text::join(missing, ", ")), "update the NVIDIA driver");
  if (CUresult r = api->cuInit(0); r != kSuccess)
    unusable(api->path, cat("cuInit: ", api->error_name(r), ", ", api->error_text(r)),
             r == kNoDevice ? "there is no GPU that this process may use (CUDA_VISIBLE_DEVICES?)"
                            : "check the driver with nvidia-smi");
  api->check(api->cuDriverGetVersion(&api->driver_version), "cuDriverGetVersion");
  return api;
}

std::shared_ptr<const Api> Api::get() {
  static std::mutex mutex;
  static std::shared_ptr<const Api> api;
  static std::exception_ptr failure;
  std::lock_guard lock(mutex);
  if (failure) std::rethrow_exception(failure);
  if (!api) try {
      api = load();
    } catch (const Unsupported&) {
      failure = std::current_exception();
      throw;
    }
  return api;
}

std::string Api::error_name(CUresult r) const {
  const char* s = nullptr;
  if (cuGetErrorName(r, &s) == kSuccess && s) return cat(s, " (", r, ")");
  return cat("error ", r);
}
std::string Api::error_text(CUresult r) const {
  const char* s = nullptr;
  if (cuGetErrorString(r, &s) == kSuccess && s) return s;
  return "an error this driver has no text for";
}
void Api::fail(CUresult r, const char* function, const std::string& detail) const {
  throw DriverError(r, {cat(error_name(r), ": ", error_text(r)), function, detail, hint_for(r)});
}

bool available() { return unavailable_reason().empty(); }
std::string unavailable_reason() {
  try {
    Api::get();
    return {};
  } catch (const Unsupported& e) {
    return e.what();
  }
}

void detail::missing(const Api& api, const FunctionInfo& f) {
  throw Unsupported(
      {cat(f.name, " is not in this driver"), api.path,
       cat("it came with CUDA ", f.since / 1000, ".", f.since % 1000 / 10, ", this driver is for CUDA ",
           api.driver_version / 1000, ".", api.driver_version % 1000 / 10),
       "update the NVIDIA driver"});
}

}  // namespace cgp::cuda
