/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of the caller's own through the C interface: a launch, what is known of a kernel, what the emulator finds, and
 * what is said about mistakes. */
#include <stdio.h>
#include <string.h>

#include "cgp/capi/cgp.h"

static int failures = 0;
#define CHECK(ok)                                                      \
  do {                                                                 \
    if (!(ok)) {                                                       \
      ++failures;                                                      \
      fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #ok); \
    }                                                                  \
  } while (0)
#define OK(call)                                                                                    \
  do {                                                                                              \
    cgp_status status_ = (call);                                                                    \
    if (status_ != CGP_OK) {                                                                        \
      ++failures;                                                                                   \
      fprintf(stderr, "%s:%d: %s: %d: %s\n", __FILE__, __LINE__, #call, status_, cgp_last_error()); \
    }                                                                                               \
  } while (0)
/* The call fails with `code`, and the message names both a and b. */
#define FAILS(code, call, a, b)                                                                         \
  do {                                                                                                  \
    cgp_status status_ = (call);                                                                        \
    if (status_ != (code) || !strstr(cgp_last_error(), a) || !strstr(cgp_last_error(), b)) {            \
      ++failures;                                                                                       \
      fprintf(stderr, "%s:%d: %s: %d: \"%s\"\n", __FILE__, __LINE__, #call, status_, cgp_last_error()); \
    }                                                                                                   \
  } while (0)

/* y[i] = a * y[i] for i < n; and an empty kernel. */
static const char* const kPtx =
    ".version 7.0\n.target sm_80\n.address_size 64\n"
    ".visible .entry scale(.param .u64 .ptr .global .align 16 y, .param .f32 a, .param .u32 n) {\n"
    "  .reg .pred %p;\n  .reg .b32 %r<5>;\n  .reg .f32 %f<3>;\n  .reg .b64 %rd<3>;\n"
    "  ld.param.u64 %rd0, [y];\n  ld.param.f32 %f0, [a];\n  ld.param.u32 %r0, [n];\n"
    "  mov.u32 %r1, %ctaid.x;\n  mov.u32 %r2, %ntid.x;\n  mov.u32 %r3, %tid.x;\n"
    "  mad.lo.u32 %r4, %r1, %r2, %r3;\n  setp.ge.u32 %p, %r4, %r0;\n  @%p ret;\n"
    "  mul.wide.u32 %rd1, %r4, 4;\n  add.u64 %rd2, %rd0, %rd1;\n"
    "  ld.global.f32 %f1, [%rd2];\n  mul.f32 %f2, %f1, %f0;\n  st.global.f32 [%rd2], %f2;\n  ret;\n}\n"
    ".visible .entry nothing(.param .align 4 .b8 s[12]) .reqntid 32 { ret; }\n";

static cgp_device* device;
static cgp_stream* stream;
static cgp_module* module;
static cgp_kernel* scale;

static void test_info(void) {
  uint64_t count = 0;
  OK(cgp_module_kernel_count(module, &count));
  CHECK(count == 2);
  const char* name = NULL;
  OK(cgp_module_kernel_name(module, 1, &name));
  CHECK(name && !strcmp(name, "nothing"));
  FAILS(CGP_INVALID_ARGUMENT, cgp_module_kernel_name(module, 2, &name), "2 kernels", "");
  cgp_kernel_info k;
  k.size = sizeof k;
  OK(cgp_kernel_get_info(scale, &k));
  CHECK(!strcmp(k.name, "scale") && k.parameters == 3 && k.block[0] == 0 && k.max_threads == 1024);
  cgp_parameter_info p;
  p.size = sizeof p;
  OK(cgp_kernel_parameter(scale, 0, &p));
  CHECK(!strcmp(p.name, "y") && p.kind == CGP_PARAMETER_POINTER && p.bytes == 8 && p.pointer_align == 16);
  OK(cgp_kernel_parameter(scale, 1, &p));
  CHECK(p.kind == CGP_PARAMETER_SCALAR && p.dtype == CGP_F32 && p.bytes == 4);
  FAILS(CGP_INVALID_ARGUMENT, cgp_kernel_parameter(scale, 3, &p), "3 parameters", "scale");
  cgp_kernel* other = NULL;
  FAILS(CGP_INVALID_ARGUMENT, cgp_kernel_open(module, NULL, &other), "names one", "nothing");
  FAILS(CGP_INVALID_ARGUMENT, cgp_kernel_open(module, "scal", &other), "scal", "scale");
  CHECK(!other);
}

static void test_launch(void) {
  enum { N = 1000 };
  float y[N];
  for (int i = 0; i < N; ++i) y[i] = (float)i;
  cgp_tensor t;
  memset(&t, 0, sizeof t);
  t.dtype = CGP_F32, t.rank = 1, t.shape[0] = N, t.stride[0] = 1;
  OK(cgp_alloc_named(device, sizeof y, "samples", &t.address));
  OK(cgp_upload(device, t.address, y, sizeof y));
  const float a = 2.5f;
  uint32_t n = N;
  cgp_argument arguments[3];
  memset(arguments, 0, sizeof arguments);
  arguments[0].kind = CGP_ARGUMENT_TENSOR, arguments[0].data = &t;
  arguments[1].kind = CGP_ARGUMENT_SCALAR, arguments[1].dtype = CGP_F32, arguments[1].data = &a;
  arguments[2].kind = CGP_ARGUMENT_SCALAR, arguments[2].dtype = CGP_U32, arguments[2].data = &n;
  cgp_launch l;
  memset(&l, 0, sizeof l);
  l.size = sizeof l;
  l.grid[0] = 4, l.grid[1] = l.grid[2] = 1, l.block[0] = 256, l.block[1] = l.block[2] = 1;
  OK(cgp_kernel_launch(stream, scale, arguments, 3, &l));
  OK(cgp_stream_wait(stream));
  OK(cgp_download(device, y, t.address, sizeof y));
  int wrong = 0;
  for (int i = 0; i < N; ++i) wrong += y[i] != 2.5f * (float)i;
  CHECK(!wrong);

  FAILS(CGP_INVALID_ARGUMENT, cgp_kernel_launch(stream, scale, arguments, 2, &l), "3 parameters",
        "2 arguments");
  arguments[1].dtype = CGP_S32;
  FAILS(CGP_INVALID_ARGUMENT, cgp_kernel_launch(stream, scale, arguments, 3, &l), "\"a\"", "f32");
  arguments[1].dtype = 99;
  FAILS(CGP_INVALID_ARGUMENT, cgp_kernel_launch(stream, scale, arguments, 3, &l), "argument 1 (a)", "99");
  arguments[1].dtype = CGP_F32;
  cgp_tensor middle = t;
  middle.address += 4;
  arguments[0].data = &middle;
  FAILS(CGP_INVALID_ARGUMENT, cgp_kernel_launch(stream, scale, arguments, 3, &l), "argument 0 (y)",
        ".align 16");
  arguments[0].data = &t;
  l.block[0] = 2048;
  FAILS(CGP_INVALID_ARGUMENT, cgp_kernel_launch(stream, scale, arguments, 3, &l), "1024 threads", "2048");
  l.block[0] = 0, l.block[1] = 0, l.block[2] = 0;
  FAILS(CGP_INVALID_ARGUMENT, cgp_kernel_launch(stream, scale, arguments, 3, &l), "block shape", "");
  l.block[0] = 256, l.block[1] = l.block[2] = 1;

  cgp_device_info info;
  info.size = sizeof info;
  OK(cgp_device_get_info(device, &info));
  if (info.is_emulator) { /* elements beyond the array are found, and named */
    n = N + 1;
    OK(cgp_kernel_launch(stream, scale, arguments, 3, &l));
    FAILS(CGP_FAULT, cgp_stream_wait(stream), "samples", "scale");
  }
  cgp_free(device, t.address);
}

static void test_struct(void) {
  cgp_kernel* nothing = NULL;
  OK(cgp_kernel_open(module, "nothing", &nothing));
  const int32_t s[3] = {1, 2, 3};
  cgp_argument a;
  memset(&a, 0, sizeof a);
  a.kind = CGP_ARGUMENT_BYTES, a.bytes = sizeof s, a.data = s;
  cgp_launch l;
  memset(&l, 0, sizeof l);
  l.size = sizeof l;
  l.grid[0] = l.grid[1] = l.grid[2] = 1;
  OK(cgp_kernel_launch(stream, nothing, &a, 1, &l)); /* .reqntid says the block */
  a.bytes = 8;
  FAILS(CGP_INVALID_ARGUMENT, cgp_kernel_launch(stream, nothing, &a, 1, &l), "12 bytes", "8");
  a.kind = CGP_ARGUMENT_TENSOR_MAP, a.data = NULL;
  FAILS(CGP_INVALID_ARGUMENT, cgp_kernel_launch(stream, nothing, &a, 1, &l), "tensor map", "NULL");
  OK(cgp_stream_wait(stream));
  cgp_kernel_free(nothing);
}

int optimizer_failures(cgp_device* device, cgp_stream* stream); /* capi_optimizer_test.c */

int main(int argc, char** argv) {
  OK(cgp_device_open(argc > 1 ? argv[1] : "emu:sm_90a", &device));
  if (!device) return 1;
  OK(cgp_stream_new(device, &stream));
  cgp_module* none = NULL;
  const char* const malformed =
      ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry f() { mov.u33 %r, 1; }";
  FAILS(CGP_INVALID_ARGUMENT, cgp_module_load(device, malformed, strlen(malformed), &none), "u33", "line 4");
  CHECK(!none);
  OK(cgp_module_load(device, kPtx, strlen(kPtx), &module));
  OK(cgp_kernel_open(module, "scale", &scale));
  test_info();
  test_struct();
  cgp_module_free(module); /* the kernel stays */
  test_launch();
  cgp_kernel_free(scale);
  failures += optimizer_failures(device, stream);
  cgp_stream_free(stream);
  cgp_device_free(device);
  if (!failures) printf("all right\n");
  return failures != 0;
}
