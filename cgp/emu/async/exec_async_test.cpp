// SPDX-License-Identifier: Apache-2.0
// cp.async, mbarrier, one-dimensional bulk copies, clusters: small kernels run under the three policies for
// asynchronous operations, which must not matter to them.
#include "cgp/emu/tensor/tensor_test_kit.h"

namespace cgp::emu {
namespace {
using namespace test;
using ::testing::HasSubstr;
using text::cat;

class Policies : public ::testing::TestWithParam<AsyncPolicy> {
 protected:
  Policies() {
    kit.options.async = GetParam();
    kit.options.seed = 11;
  }
  Kit kit;
};
INSTANTIATE_TEST_SUITE_P(Async, Policies,
                         ::testing::Values(AsyncPolicy::eager, AsyncPolicy::late, AsyncPolicy::random),
                         [](const auto& i) {
                           return i.param == AsyncPolicy::eager  ? "eager"
                                  : i.param == AsyncPolicy::late ? "late"
                                                                 : "random";
                         });

std::vector<std::uint32_t> iota(std::size_t n, std::uint32_t start = 0) {
  std::vector<std::uint32_t> v(n);
  for (std::size_t i = 0; i < n; ++i) v[i] = start + std::uint32_t(i);
  return v;
}

// ---------------------------------------------------------------- cp.async
TEST_P(Policies, CpAsyncSizesAndZeroFill) {
  const std::string k = R"(
.visible .entry k(.param .u64 pi, .param .u64 po) {
 .reg .u64 %i, %o; .reg .u32 %t, %s, %n, %r<4>; .reg .pred %p;
 .shared .align 16 .b8 buf[2048];
 mov.u32 %t, %tid.x; ld.param.u64 %i, [pi]; ld.param.u64 %o, [po]; mov.u32 %s, buf;
 mad.lo.u32 %s, %t, 64, %s; mad.wide.u32 %i, %t, 64, %i; mad.wide.u32 %o, %t, 64, %o;
 cp.async.ca.shared.global [%s], [%i], 4;
 cp.async.ca.shared.global [%s+8], [%i+8], 8;
 and.b32 %n, %t, 15;
 cp.async.cg.shared.global [%s+16], [%i+16], 16, %n;
 setp.lt.u32 %p, %t, 10;
 cp.async.cg.shared.global [%s+32], [%i+32], 16, %p;
 cp.async.commit_group;
 cp.async.commit_group;
 cp.async.cg.shared::cta.global.L2::128B [%s+48], [%i+48], 16;
 cp.async.commit_group;
 cp.async.wait_group 2;
 ld.shared.u32 %r0, [%s]; st.global.u32 [%o], %r0;
 ld.shared.v2.u32 {%r0,%r1}, [%s+8]; st.global.v2.u32 [%o+8], {%r0,%r1};
 ld.shared.v4.u32 {%r0,%r1,%r2,%r3}, [%s+16]; st.global.v4.u32 [%o+16], {%r0,%r1,%r2,%r3};
 ld.shared.v4.u32 {%r0,%r1,%r2,%r3}, [%s+32]; st.global.v4.u32 [%o+32], {%r0,%r1,%r2,%r3};
 cp.async.wait_all;
 ld.shared.v4.u32 {%r0,%r1,%r2,%r3}, [%s+48]; st.global.v4.u32 [%o+48], {%r0,%r1,%r2,%r3};
 ret;
})";
  const auto in = iota(512, 1000);
  const std::uint64_t out = kit.upload(std::vector<std::uint32_t>(512));
  EXPECT_CLEAN(kit.launch(k, {}, {32, 1, 1}, Params().add(kit.upload(in)).add(out)));
  const auto got = kit.download<std::uint32_t>(out, 512);
  for (std::uint32_t t = 0; t < 32; ++t)
    for (std::uint32_t i = 0; i < 16; ++i) {
      std::uint32_t want = 1000 + t * 16 + i;
      if (i >= 1 && i < 2) want = 0;  // nothing copies word 1
      if (i >= 4 && i < 8) {          // t % 16 bytes of sixteen, the rest zero
        std::uint8_t bytes[4];
        std::memcpy(bytes, &want, 4);
        for (std::uint32_t b = 0; b < 4; ++b)
          if ((i - 4) * 4 + b >= t % 16) bytes[b] = 0;
        std::memcpy(&want, bytes, 4);
      }
      if (i >= 8 && i < 12 && t < 10) want = 0;  // source ignored
      EXPECT_EQ(got[t * 16 + i], want) << "thread " << t << " word " << i;
    }
}

TEST(CpAsync, LateShowsAMissingWait) {
  const std::string k = R"(
.visible .entry k(.param .u64 pi, .param .u64 po) {
 .reg .u64 %i, %o; .reg .u32 %s, %r;
 .shared .align 16 .b8 buf[16];
 ld.param.u64 %i, [pi]; ld.param.u64 %o, [po]; mov.u32 %s, buf;
 cp.async.ca.shared.global [%s], [%i], 4;
 cp.async.commit_group;
 cp.async.wait_group 1;
 ld.shared.u32 %r, [%s]; st.global.u32 [%o], %r;
 ret;
})";
  Kit kit;
  kit.options.async = AsyncPolicy::late;
  kit.options.checks = CheckSet::all() - Check::race;
  const std::uint64_t out = kit.upload(iota(1));
  const Result r = kit.launch(k, {}, {1, 1, 1}, Params().add(kit.upload(iota(4, 7))).add(out));
  EXPECT_NE(kit.download<std::uint32_t>(out, 1)[0], 7u);
  EXPECT_EQ(first_class(r), "uninit.shared");
}

TEST(CpAsync, ShortSourceAtTheEndOfABufferIsLegal) {
  const std::string k = R"(
.visible .entry k(.param .u64 pi) {
 .reg .u64 %i; .reg .u32 %s;
 .shared .align 16 .b8 buf[16];
 ld.param.u64 %i, [pi]; mov.u32 %s, buf;
 cp.async.cg.shared.global [%s], [%i+16], 16, 4;
 cp.async.wait_all;
 ret;
})";
  Kit kit;
  EXPECT_CLEAN(kit.launch(k, {}, {1, 1, 1}, Params().add(kit.upload(iota(5)))));
  EXPECT_EQ(first_class(kit.launch(k, {}, {1, 1, 1}, Params().add(kit.upload(iota(4))))), "oob.global");
}

TEST_P(Policies, CpAsyncArrivesOnAnMbarrier) {
  const std::string k = R"(
.visible .entry k(.param .u64 pi, .param .u64 po) {
 .reg .u64 %i, %o; .reg .u32 %t, %s, %b, %r, %u; .reg .pred %p;
 .shared .align 16 .b8 buf[256]; .shared .align 8 .b64 bar;
 mov.u32 %t, %tid.x; ld.param.u64 %i, [pi]; ld.param.u64 %o, [po]; mov.u32 %s, buf; mov.u32 %b, bar;
 setp.eq.u32 %p, %t, 0;
 @%p mbarrier.init.shared.b64 [%b], 64;
 bar.sync 0;
 mad.lo.u32 %u, %t, 4, %s; mad.wide.u32 %i, %t, 4, %i; mad.wide.u32 %o, %t, 4, %o;
 cp.async.ca.shared.global [%u], [%i], 4;
 cp.async.mbarrier.arrive.noinc.shared.b64 [%b];
W: mbarrier.try_wait.parity.shared.b64 %p, [%b], 0; @!%p bra W;
 xor.b32 %u, %t, 63; mad.lo.u32 %u, %u, 4, %s;
 ld.shared.u32 %r, [%u]; st.global.u32 [%o], %r;
 ret;
})";
  const std::uint64_t out = kit.upload(iota(64));
  EXPECT_CLEAN(kit.launch(k, {}, {64, 1, 1}, Params().add(kit.upload(iota(64, 500))).add(out)));
  const auto got = kit.download<std::uint32_t>(out, 64);
  for (std::uint32_t t = 0; t < 64; ++t) EXPECT_EQ(got[t], 500 + (t ^ 63));
}

// ---------------------------------------------------------------- mbarrier
// Warp 0 produces, warp 1 consumes, through full and empty barriers, twenty rounds over two stages.
TEST_P(Policies, MbarrierRing) {
  const std::string k = R"(
.visible .entry k(.param .u64 po) {
 .reg .u64 %o, %tok; .reg .u32 %t, %s, %b, %n, %st, %ph, %a, %v, %l, %c; .reg .pred %p, %q;
 .shared .align 16 .b8 buf[256]; .shared .align 8 .b64 bar[4];
 mov.u32 %t, %tid.x; ld.param.u64 %o, [po]; mov.u32 %s, buf; mov.u32 %b, bar; and.b32 %l, %t, 31;
 setp.ne.u32 %p, %t, 0; @%p bra GO;
 mbarrier.init.shared::cta.b64 [%b], 32; mbarrier.init.shared::cta.b64 [%b+8], 32;
 mbarrier.init.shared::cta.b64 [%b+16], 32; mbarrier.init.shared::cta.b64 [%b+24], 32;
GO: bar.sync 0;
 mov.u32 %n, 0; mov.u32 %st, 0; mov.u32 %ph, 0;
 setp.ge.u32 %q, %t, 32; @%q bra CONSUME;
PRODUCE: mad.lo.u32 %a, %st, 8, %b; xor.b32 %c, %ph, 1;
WP: mbarrier.try_wait.parity.shared::cta.b64 %p, [%a+16], %c, 1000; @!%p bra WP;
 mad.lo.u32 %v, %st, 128, %s; mad.lo.u32 %v, %l, 4, %v; mad.lo.u32 %c, %n, 100, %l; st.shared.u32 [%v], %c;
 mbarrier.arrive.release.cta.shared::cta.b64 %tok, [%a];
 add.u32 %n, %n, 1; xor.b32 %st, %st, 1; setp.eq.u32 %p, %st, 0; @%p xor.b32 %ph, %ph, 1;
 setp.lt.u32 %p, %n, 20; @%p bra PRODUCE;
 bra DONE;
CONSUME: mov.u32 %c, 0;
LOOP: mad.lo.u32 %a, %st, 8, %b;
WC: mbarrier.test_wait.parity.shared::cta.b64 %p, [%a], %ph; @!%p bra WC;
 mad.lo.u32 %v, %st, 128, %s; xor.b32 %t, %l, 31; mad.lo.u32 %v, %t, 4, %v; ld.shared.u32 %v, [%v];
 mad.wide.u32 %tok, %n, 128, %o; mad.wide.u32 %tok, %l, 4, %tok; st.global.u32 [%tok], %v;
 mbarrier.arrive.shared::cta.b64 _, [%a+16];
 add.u32 %n, %n, 1; xor.b32 %st, %st, 1; setp.eq.u32 %p, %st, 0; @%p xor.b32 %ph, %ph, 1;
 setp.lt.u32 %p, %n, 20; @%p bra LOOP;
DONE: ret;
})";
  const std::uint64_t out = kit.upload(iota(640));
  EXPECT_CLEAN(kit.launch(k, {}, {64, 1, 1}, Params().add(out)));
  const auto got = kit.download<std::uint32_t>(out, 640);
  for (std::uint32_t n = 0; n < 20; ++n)
    for (std::uint32_t l = 0; l < 32; ++l) ASSERT_EQ(got[n * 32 + l], n * 100 + (l ^ 31));
}

TEST_P(Policies, MbarrierTokensAndPendingCounts) {
  const std::string k = R"(
.visible .entry k(.param .u64 po) {
 .reg .u64 %o, %tok; .reg .u32 %t, %b, %c; .reg .pred %p;
 .shared .align 8 .b64 bar;
 mov.u32 %t, %tid.x; ld.param.u64 %o, [po]; mov.u32 %b, bar;
 setp.eq.u32 %p, %t, 0; @%p mbarrier.init.shared::cta.b64 [%b], 64;
 bar.sync 0;
 mbarrier.arrive.shared::cta.b64 %tok, [%b];
 mbarrier.pending_count.b64 %c, %tok;
W: mbarrier.test_wait.shared::cta.b64 %p, [%b], %tok; @!%p bra W;
 mad.wide.u32 %o, %t, 4, %o; st.global.u32 [%o], %c;
 ret;
})";
  const std::uint64_t out = kit.upload(iota(64));
  EXPECT_CLEAN(kit.launch(k, {}, {64, 1, 1}, Params().add(out)));
  auto got = kit.download<std::uint32_t>(out, 64);
  std::sort(got.begin(), got.end());
  EXPECT_EQ(got, iota(64, 1));  // each arrival saw another pending count, 64 down to 1
}

std::string one_thread(const std::string& body) {
  return ".visible .entry k() {\n .reg .u32 %b, %r; .reg .u64 %tok; .reg .pred %p;\n .shared .align 16 .b8 "
         "buf[64]; "
         ".shared .align 8 .b64 bar[2];\n mov.u32 %b, bar;\n" +
         body + "\n ret;\n}\n";
}

TEST(MbarrierMisuse, DeadlockNamesWhatIsMissing) {
  const std::string k = R"(
.visible .entry k() {
 .reg .u32 %b, %t; .reg .pred %p;
 .shared .align 16 .b8 pad[1024]; .shared .align 8 .b64 bar;
 mov.u32 %b, pad; add.u32 %b, %b, 1016; mov.u32 %t, %tid.x;
 setp.eq.u32 %p, %t, 0;
 @%p mbarrier.init.shared::cta.b64 [%b], 65;
 @%p mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%b], 512;
 bar.sync 0;
 mbarrier.arrive.shared::cta.b64 _, [%b];
W: mbarrier.try_wait.parity.shared::cta.b64 %p, [%b], 0; @!%p bra W;
 ret;
})";
  Kit kit;
  const Result r = kit.launch(k, {}, {64, 1, 1}, Params());
  EXPECT_EQ(first_class(r), "deadlock");
  EXPECT_THAT(findings(r), HasSubstr("phase 0: pending 1 of 65 arrivals, tx 512 bytes outstanding"));
}

TEST(MbarrierMisuse, Findings) {
  const auto classes = [](const std::string& body) {
    Kit kit;
    return first_class(kit.launch(one_thread(body), {}, {1, 1, 1}, Params()));
  };
  EXPECT_EQ(classes("mbarrier.arrive.shared::cta.b64 _, [%b];"), "mbarrier.state");
  EXPECT_EQ(classes("mbarrier.init.shared::cta.b64 [%b], 1; mbarrier.arrive.shared::cta.b64 _, [%b], 2;"),
            "mbarrier.count");
  EXPECT_EQ(classes("mbarrier.init.shared::cta.b64 [%b], 1; mbarrier.expect_tx.relaxed.cta.shared::cta.b64 "
                    "[%b], 1048576;"),
            "mbarrier.tx");
  EXPECT_EQ(classes("mbarrier.init.shared::cta.b64 [%b], 1; mbarrier.init.shared::cta.b64 [%b], 1;"),
            "mbarrier.state");
  EXPECT_EQ(classes("mbarrier.init.shared::cta.b64 [%b], 0;"), "mbarrier.count");
  EXPECT_EQ(classes("mbarrier.init.shared::cta.b64 [%b+4], 1;"), "misaligned");
  EXPECT_EQ(classes("mbarrier.init.shared::cta.b64 [%b], 1; mbarrier.inval.shared::cta.b64 [%b];"
                    "mbarrier.arrive.shared::cta.b64 _, [%b];"),
            "mbarrier.state");
  EXPECT_EQ(classes("mbarrier.init.shared::cta.b64 [%b], 1; mov.u32 %r, 5; st.shared.u32 [%b], %r;"
                    "mbarrier.arrive.shared::cta.b64 _, [%b];"),
            "mbarrier.state");
  EXPECT_EQ(classes("mbarrier.init.shared::cta.b64 [%b], 1; mbarrier.arrive.shared::cta.b64 _, [%b];"
                    "mbarrier.inval.shared::cta.b64 [%b]; mbarrier.init.shared::cta.b64 [%b], 1;"),
            "");
}

// ---------------------------------------------------------------- bulk copies
TEST_P(Policies, BulkThereAndBack) {
  const std::string k = R"(
.visible .entry k(.param .u64 pi, .param .u64 po, .param .u64 pr) {
 .reg .u64 %i, %o, %r; .reg .u32 %s, %b, %t; .reg .pred %p;
 .shared .align 128 .b8 buf[2048]; .shared .align 8 .b64 bar;
 ld.param.u64 %i, [pi]; ld.param.u64 %o, [po]; ld.param.u64 %r, [pr]; mov.u32 %s, buf; mov.u32 %b, bar;
 mov.u32 %t, %tid.x; setp.ne.u32 %p, %t, 0; @%p bra END;
 mbarrier.init.shared::cta.b64 [%b], 1;
 fence.mbarrier_init.release.cluster;
 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%b], 2048;
 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%s], [%i], 1024, [%b];
 cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%s+1024], [%i+1024], 1024, [%b];
W: mbarrier.try_wait.parity.shared::cta.b64 %p, [%b], 0; @!%p bra W;
 cp.async.bulk.global.shared::cta.bulk_group [%o], [%s], 2048;
 cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%r], [%s], 1024;
 cp.async.bulk.commit_group;
 cp.async.bulk.wait_group 0;
END: ret;
})";
  const auto in = iota(512, 3);
  const std::uint64_t out = kit.upload(std::vector<std::uint32_t>(512)), red = kit.upload(iota(256));
  const Result r = kit.launch(k, {}, {32, 1, 1}, Params().add(kit.upload(in)).add(out).add(red));
  EXPECT_CLEAN(r);
  EXPECT_EQ(kit.download<std::uint32_t>(out, 512), in);
  const auto sums = kit.download<std::uint32_t>(red, 256);
  for (std::uint32_t i = 0; i < 256; ++i) EXPECT_EQ(sums[i], 2 * i + 3);
  EXPECT_EQ(r.counters.global_load_bytes, 2048u);
  EXPECT_EQ(r.counters.global_load_sectors, 64u);
  EXPECT_EQ(r.counters.global_bulk_load_sectors, 64u) << "these are no requests of a warp";
  EXPECT_EQ(r.counters.global_bulk_store_sectors, 96u);
  EXPECT_EQ(r.counters.global_store_bytes, 3072u);
}

TEST_P(Policies, BulkReductions) {
  const auto kernel = [](const std::string& form, int bytes) {
    return cat(R"(
.visible .entry k(.param .u64 pi, .param .u64 po) {
 .reg .u64 %i, %o; .reg .u32 %s; .reg .u32 %r<4>;
 .shared .align 128 .b8 buf[64];
 ld.param.u64 %i, [pi]; ld.param.u64 %o, [po]; mov.u32 %s, buf;
 ld.global.v4.u32 {%r0,%r1,%r2,%r3}, [%i]; st.shared.v4.u32 [%s], {%r0,%r1,%r2,%r3};
 fence.proxy.async.shared::cta;
 cp.reduce.async.bulk.global.shared::cta.bulk_group)",
               form, " [%o], [%s], ", bytes, ";\n",
               " cp.async.bulk.commit_group;\n cp.async.bulk.wait_group 0;\n ret;\n}\n");
  };
  const auto run = [&](const std::string& form, auto a, auto b) {
    const std::uint64_t out = kit.upload(a);
    EXPECT_CLEAN(kit.launch(kernel(form, int(a.size() * sizeof a[0])), {}, {1, 1, 1},
                            Params().add(kit.upload(b)).add(out)));
    return kit.download<typename decltype(a)::value_type>(out, a.size());
  };
  using F = std::vector<float>;
  EXPECT_EQ(run(".add.f32", F{1, 2, 3, 4}, F{0.5, -2, 8, 1}), (F{1.5, 0, 11, 5}));
  using S = std::vector<std::int32_t>;
  EXPECT_EQ(run(".max.s32", S{1, -2, 3, -4}, S{0, -1, 8, -9}), (S{1, -1, 8, -4}));
  EXPECT_EQ(run(".min.s32", S{1, -2, 3, -4}, S{0, -1, 8, -9}), (S{0, -2, 3, -9}));
  using U = std::vector<std::uint32_t>;
  EXPECT_EQ(run(".xor.b32", U{1, 2, 3, 4}, U{5, 5, 5, 5}), (U{4, 7, 6, 1}));
  EXPECT_EQ(run(".inc.u32", U{1, 5, 6, 0}, U{5, 5, 5, 5}), (U{2, 0, 0, 1}));
  EXPECT_EQ(run(".dec.u32", U{1, 5, 6, 0}, U{5, 5, 5, 5}), (U{0, 4, 5, 5}));
  const auto h = [](std::initializer_list<double> v) {
    std::vector<half> r;
    for (double x : v) r.push_back(half(x));
    return r;
  };
  EXPECT_EQ(run(".add.noftz.f16", h({1, 2, 3, 4, 5, 6, 7, 1024}), h({1, 1, 1, 1, 1, 1, 1, 0.5})),
            h({2, 3, 4, 5, 6, 7, 8, 1024}));
}

TEST(BulkMisuse, SizeAndAlignment) {
  const auto run = [](const std::string& copy) {
    Kit kit;
    const std::string k =
        cat(".visible .entry k(.param .u64 pi) {\n .reg .u64 %i; .reg .u32 %s, %b;\n .shared .align 128 .b8 "
            "buf[256]; .shared "
            ".align 8 .b64 bar;\n ld.param.u64 %i, [pi]; mov.u32 %s, buf; mov.u32 %b, bar;\n "
            "mbarrier.init.shared::cta.b64 "
            "[%b], 1;\n cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes ",
            copy, ";\n ret;\n}\n");
    return first_class(kit.launch(k, {}, {1, 1, 1}, Params().add(kit.upload(iota(64)))));
  };
  EXPECT_EQ(run("[%s], [%i], 24, [%b]"), "misaligned");
  EXPECT_EQ(run("[%s+8], [%i], 16, [%b]"), "misaligned");
  EXPECT_EQ(run("[%s], [%i+4], 16, [%b]"), "misaligned");
  EXPECT_EQ(run("[%s], [%i+128], 256, [%b]"), "oob.global");
  EXPECT_EQ(run("[%s+128], [%i], 256, [%b]"), "oob.shared");
  EXPECT_EQ(run("[%s], [%i], 16, [%s]"), "mbarrier.state");
}

// ---------------------------------------------------------------- clusters
TEST_P(Policies, DistributedSharedMemory) {
  const std::string k = R"(
.visible .entry k(.param .u64 po) .reqnctapercluster 4, 1, 1 {
 .reg .u64 %o, %g; .reg .u32 %t, %s, %r, %n, %p, %v, %w, %x, %y; .reg .pred %q;
 .shared .align 16 .b8 buf[256]; .shared .align 4 .u32 count;
 mov.u32 %t, %tid.x; ld.param.u64 %o, [po]; mov.u32 %s, buf; mov.u32 %r, %cluster_ctarank; mov.u32 %n, %cluster_nctarank;
 mad.lo.u32 %v, %r, 1000, %t; mad.lo.u32 %w, %t, 4, %s; st.shared.u32 [%w], %v;
 setp.eq.u32 %q, %t, 0; mov.u32 %x, count; mov.u32 %y, 0; @%q st.shared.u32 [%x], %y;
 barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;
 add.u32 %p, %r, 1; rem.u32 %p, %p, %n;
 mapa.shared::cluster.u32 %w, %w, %p; ld.shared::cluster.u32 %v, [%w];
 getctarank.shared::cluster.u32 %w, %w;
 mapa.shared::cluster.u32 %x, %x, 0; atom.shared::cluster.add.u32 %y, [%x], 1;
 barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
 mov.u32 %x, count; ld.shared.u32 %y, [%x];
 mad.lo.u32 %x, %r, 32, %t; mad.wide.u32 %o, %x, 16, %o; st.global.v4.u32 [%o], {%v, %w, %y, %n};
 ret;
})";
  const std::uint64_t out = kit.upload(iota(512));
  EXPECT_CLEAN(kit.launch(k, {4, 1, 1}, {32, 1, 1}, Params().add(out), 0, {4, 1, 1}));
  const auto got = kit.download<std::uint32_t>(out, 512);
  for (std::uint32_t r = 0; r < 4; ++r)
    for (std::uint32_t t = 0; t < 32; ++t) {
      const std::uint32_t* x = &got[(r * 32 + t) * 4];
      EXPECT_EQ(x[0], (r + 1) % 4 * 1000 + t);
      EXPECT_EQ(x[1], (r + 1) % 4);
      EXPECT_EQ(x[2], r == 0 ? 128u : 0u);
      EXPECT_EQ(x[3], 4u);
    }
}

TEST_P(Policies, RemoteStoresAndReductionsSignalTheReceiver) {
  const std::string k = R"(
.visible .entry k(.param .u64 po) .reqnctapercluster 2, 1, 1 {
 .reg .u64 %o; .reg .u32 %t, %s, %b, %r, %p, %v, %w, %a, %c; .reg .pred %q;
 .shared .align 16 .b8 buf[256]; .shared .align 8 .b64 bar;
 mov.u32 %t, %tid.x; ld.param.u64 %o, [po]; mov.u32 %s, buf; mov.u32 %b, bar; mov.u32 %r, %cluster_ctarank;
 mad.lo.u32 %w, %t, 4, %s; mov.u32 %v, 0; st.shared.u32 [%w+128], %v;
 setp.eq.u32 %q, %t, 0;
 @%q mbarrier.init.shared::cta.b64 [%b], 1;
 @%q fence.mbarrier_init.release.cluster;
 @%q mbarrier.arrive.expect_tx.shared::cta.b64 _, [%b], 256;
 barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;
 xor.b32 %p, %r, 1;
 mapa.shared::cluster.u32 %a, %w, %p; mapa.shared::cluster.u32 %c, %b, %p;
 mad.lo.u32 %v, %r, 100, %t;
 st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%a], %v, [%c];
 red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%a+128], %v, [%c];
W: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %q, [%b], 0; @!%q bra W;
 ld.shared.u32 %v, [%w]; ld.shared.u32 %c, [%w+128];
 mad.lo.u32 %a, %r, 32, %t; mad.wide.u32 %o, %a, 8, %o; st.global.v2.u32 [%o], {%v, %c};
 barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
 ret;
})";
  const std::uint64_t out = kit.upload(iota(128));
  EXPECT_CLEAN(kit.launch(k, {2, 1, 1}, {32, 1, 1}, Params().add(out), 0, {2, 1, 1}));
  const auto got = kit.download<std::uint32_t>(out, 128);
  for (std::uint32_t r = 0; r < 2; ++r)
    for (std::uint32_t t = 0; t < 32; ++t) {
      EXPECT_EQ(got[(r * 32 + t) * 2], (r ^ 1) * 100 + t);
      EXPECT_EQ(got[(r * 32 + t) * 2 + 1], (r ^ 1) * 100 + t);
    }
}

TEST_P(Policies, BulkCopyIntoAPeer) {
  const std::string k = R"(
.visible .entry k(.param .u64 po) .reqnctapercluster 2, 1, 1 {
 .reg .u64 %o; .reg .u32 %t, %s, %b, %r, %p, %v, %w, %a, %c; .reg .pred %q;
 .shared .align 128 .b8 buf[256]; .shared .align 8 .b64 bar;
 mov.u32 %t, %tid.x; ld.param.u64 %o, [po]; mov.u32 %s, buf; mov.u32 %b, bar; mov.u32 %r, %cluster_ctarank;
 mad.lo.u32 %w, %t, 4, %s; mad.lo.u32 %v, %r, 1000, %t; st.shared.u32 [%w], %v;
 setp.eq.u32 %q, %t, 0;
 @%q mbarrier.init.shared::cta.b64 [%b], 1;
 @%q mbarrier.arrive.expect_tx.shared::cta.b64 _, [%b], 128;
 fence.proxy.async.shared::cta;
 barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;
 xor.b32 %p, %r, 1; add.u32 %a, %s, 128;
 mapa.shared::cluster.u32 %a, %a, %p; mapa.shared::cluster.u32 %c, %b, %p;
 @%q cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%a], [%s], 128, [%c];
W: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %q, [%b], 0; @!%q bra W;
 ld.shared.u32 %v, [%w+128];
 mad.lo.u32 %a, %r, 32, %t; mad.wide.u32 %o, %a, 4, %o; st.global.u32 [%o], %v;
 barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
 ret;
})";
  const std::uint64_t out = kit.upload(iota(64));
  EXPECT_CLEAN(kit.launch(k, {2, 1, 1}, {32, 1, 1}, Params().add(out), 0, {2, 1, 1}));
  const auto got = kit.download<std::uint32_t>(out, 64);
  for (std::uint32_t r = 0; r < 2; ++r)
    for (std::uint32_t t = 0; t < 32; ++t) EXPECT_EQ(got[r * 32 + t], (r ^ 1) * 1000 + t);
}

TEST(ClusterMisuse, Findings) {
  const auto run = [](const std::string& body) {
    Kit kit;
    const std::string k = cat(
        ".visible .entry k() .reqnctapercluster 2, 1, 1 {\n .reg .u32 %s, %r, %v; .reg .pred %p;\n .shared "
        ".align 16 .b8 "
        "buf[64];\n mov.u32 %s, buf; mov.u32 %r, %cluster_ctarank; mov.u32 %v, 1; st.shared.u32 [%s], %v;\n",
        body, "\n ret;\n}\n");
    return first_class(kit.launch(k, {2, 1, 1}, {32, 1, 1}, Params(), 0, {2, 1, 1}));
  };
  EXPECT_EQ(run("mapa.shared::cluster.u32 %s, %s, 5; ld.shared::cluster.u32 %v, [%s];"), "oob.shared");
  EXPECT_EQ(run("barrier.cluster.wait.aligned;"), "barrier.count");
  EXPECT_EQ(run("barrier.cluster.arrive.aligned; barrier.cluster.arrive.aligned;"), "barrier.count");
  EXPECT_EQ(run("setp.eq.u32 %p, %r, 0; @%p bra E; mov.u32 %r, 0; L: add.u32 %r, %r, 1; setp.lt.u32 %p, %r, "
                "20000; @%p bra L;"
                " mapa.shared::cluster.u32 %s, %s, 0; ld.shared::cluster.u32 %v, [%s]; E:"),
            "lifetime.dsmem");
}

TEST(SetMaxNReg, PoolAndDeadlock) {
  const auto run = [](int dec, int inc) {
    Kit kit;
    const std::string k =
        cat(".visible .entry k() .maxntid 384, 1, 1 {\n .reg .u32 %t; .reg .pred %p;\n mov.u32 %t, %tid.x; "
            "setp.lt.u32 %p, %t, "
            "128; @%p bra A;\n setmaxnreg.inc.sync.aligned.u32 ",
            inc, "; bra E;\nA: setmaxnreg.dec.sync.aligned.u32 ", dec, ";\nE: bar.sync 0;\n ret;\n}\n");
    return kit.launch(k, {}, {384, 1, 1}, Params());
  };
  EXPECT_CLEAN(run(40, 232));
  EXPECT_CLEAN(run(24, 240));
  const Result r = run(24, 248);
  EXPECT_EQ(first_class(r), "deadlock");
  EXPECT_THAT(findings(r), HasSubstr("setmaxnreg.inc to 248"));
}

}  // namespace
}  // namespace cgp::emu
