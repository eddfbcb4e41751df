// SPDX-License-Identifier: Apache-2.0
// Reports of other profilers: pages that ncu 2025.3 printed on an H200, report files made byte by byte, and
// databases with the tables of nsys.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "cgp/base/error.h"
#include "cgp/base/file.h"
#include "cgp/profile/contract/baseline_store.h"
#include "cgp/profile/contract/contract.h"
#include "cgp/profile/import/csv.h"
#include "cgp/profile/import/import.h"
#include "cgp/profile/import/ncu_report.h"
#include "cgp/profile/import/nsys_report.h"

using namespace cgp;
using namespace cgp::profile;
using measure::Metric;
using testing::HasSubstr;

namespace {

std::string fixture(const std::string& name) { return std::string(CGP_PROFILE_TESTDATA) + "/" + name; }

std::string written(const std::string& name, const std::string& content) {
  const std::string path = testing::TempDir() + "cgp_import_" + name;
  std::filesystem::remove(path);
  write_file(path, content);
  return path;
}

template <class E, class F>
std::string message_of(F f) {
  try {
    f();
  } catch (const E& e) {
    return e.what();
  }
  return "nothing was thrown";
}

// ---------------------------------------------------------------- protocol buffers, written
std::string varint(std::uint64_t v) {
  std::string out;
  for (; v >= 128; v >>= 7) out += char(v | 128);
  return out + char(v);
}
std::string number(int field, std::uint64_t v) { return varint(std::uint64_t(field) << 3) + varint(v); }
std::string bytes(int field, const std::string& b) {
  return varint(std::uint64_t(field) << 3 | 2) + varint(b.size()) + b;
}
std::string real(int field, double v) {
  std::string raw(8, 0);
  std::memcpy(raw.data(), &v, 8);
  return varint(std::uint64_t(field) << 3 | 1) + raw;
}
std::string sized(const std::string& b) {
  std::string out;
  for (int i = 0; i < 4; ++i) out += char(b.size() >> 8 * i);
  return out + b;
}
std::string triple(int field, int x, int y, int z) {
  return bytes(field,
               number(1, std::uint64_t(x)) + number(2, std::uint64_t(y)) + number(3, std::uint64_t(z)));
}

/// One block with one source and one launch of `_Z4fillPfi`.
std::string report_file() {
  const std::vector<std::string> names{"gpu__time_duration.sum",
                                       "launch__registers_per_thread",
                                       "memory_l2_theoretical_sectors_global",
                                       "memory_l2_theoretical_sectors_global_ideal",
                                       "inst_executed",
                                       "device__attribute_architecture"};
  std::string table;
  for (const auto& n : names) table += bytes(1, n);
  const std::string major = bytes(1, "compute_capability_major") + bytes(2, number(4, 9)),
                    minor = bytes(1, "compute_capability_minor") + bytes(2, number(4, 0));
  const std::string device = number(1, 0) + bytes(2, "NVIDIA H200") + bytes(3, major) + bytes(3, minor);
  const auto instance = [](std::uint64_t address, std::uint64_t v) {
    return bytes(3, bytes(1, number(5, address)) + bytes(2, number(5, v)));
  };
  std::string result = number(1, 7) + bytes(5, "_Z4fillPfi") + bytes(6, "fill") +
                       bytes(7, "fill(float *, int)") + triple(10, 64, 2, 1) + triple(11, 128, 1, 1);
  result += bytes(13, number(1, 0) + bytes(2, real(3, 12500)));
  result += bytes(13, number(1, 1) + bytes(2, number(4, 40)));
  result += bytes(
      13, number(1, 2) + bytes(2, number(5, 4224)) + instance(0x7f0010, 128) + instance(0x7f0040, 4096));
  result +=
      bytes(13, number(1, 3) + bytes(2, number(5, 640)) + instance(0x7f0010, 128) + instance(0x7f0040, 512));
  result += bytes(13, number(1, 4) + instance(0x7f0010, 128) + instance(0x7f0040, 128) +
                          bytes(3, bytes(1, number(5, 3)) + bytes(2, number(5, 9))));
  result += bytes(13, number(1, 5) + bytes(2, number(4, 400)));
  const std::string payload = sized("the code") + sized(result);
  const std::string header = number(1, 1) + number(2, 1) + bytes(3, number(1, 99) + bytes(6, device)) +
                             bytes(4, table) + number(5, payload.size());
  return std::string("NVR\0", 4) + sized(number(1, 3)) + sized(header) + payload;
}

// ---------------------------------------------------------------- databases, written
/// False where there is no SQLite.
bool run_sql(const std::string& path, const std::string& sql) {
  void* so = dlopen("libsqlite3.so.0", RTLD_NOW);
  if (!so) return false;
  const auto open = reinterpret_cast<int (*)(const char*, void**)>(dlsym(so, "sqlite3_open"));
  const auto exec =
      reinterpret_cast<int (*)(void*, const char*, void*, void*, char**)>(dlsym(so, "sqlite3_exec"));
  const auto close = reinterpret_cast<int (*)(void*)>(dlsym(so, "sqlite3_close"));
  std::filesystem::remove(path);
  void* database = nullptr;
  EXPECT_EQ(open(path.c_str(), &database), 0);
  char* why = nullptr;
  EXPECT_EQ(exec(database, sql.c_str(), nullptr, nullptr, &why), 0) << (why ? why : "");
  close(database);
  return true;
}

constexpr const char* kNsysTables =
    "CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT NOT NULL);"
    "INSERT INTO StringIds VALUES (1,'_Z4fillPfi'),(2,'fill(float *, int)'),(3,'cudaLaunchKernel_v7000'),"
    "(4,'cudaMemcpyAsync_v3020');"
    "CREATE TABLE TARGET_INFO_GPU (id INTEGER, name TEXT, smCount INTEGER);"
    "INSERT INTO TARGET_INFO_GPU VALUES (0,'NVIDIA H200',132);"
    "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, contextId "
    "INTEGER,"
    " streamId INTEGER, correlationId INTEGER, globalPid INTEGER, demangledName INTEGER, shortName INTEGER,"
    " mangledName INTEGER, gridX INTEGER, gridY INTEGER, gridZ INTEGER, blockX INTEGER, blockY INTEGER,"
    " blockZ INTEGER, registersPerThread INTEGER, staticSharedMemory INTEGER, dynamicSharedMemory INTEGER);"
    // two processes that number their calls alike
    "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES "
    "(10000,14000,0,1,7,5,16777216,2,2,1,64,2,1,128,1,1,40,16,1024),"
    "(20000,24000,0,1,7,6,16777216,2,2,1,64,2,1,128,1,1,40,16,1024),"
    "(30000,38000,1,1,7,5,33554432,2,2,NULL,32,1,1,128,1,1,40,16,1024);"
    "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, eventClass INTEGER, globalTid "
    "INTEGER,"
    " correlationId INTEGER, nameId INTEGER, returnValue INTEGER);"
    "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES "
    "(7000,9000,0,16777228,5,3,0),(17000,19000,0,16777228,6,3,0),"
    "(27000,29000,0,33554444,5,3,0),(1000,2000,0,16777228,4,4,0);"
    "CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER,"
    " correlationId INTEGER, globalPid INTEGER, bytes INTEGER, copyKind INTEGER, srcKind INTEGER, dstKind "
    "INTEGER);"
    "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (3000,5000,0,7,4,16777216,65536,1,0,2);"
    "CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, text TEXT); INSERT INTO NVTX_EVENTS VALUES "
    "(0,1,'x');";

}  // namespace

TEST(csv, quotes_hold_commas_quotes_and_line_ends) {
  const auto rows = parse_csv("a,\"b,c\",\"d\"\"e\"\r\n\n\"x\ny\",,\"\"\n1", "f");
  ASSERT_EQ(rows.size(), 3u) << "an empty line is no row";
  EXPECT_THAT(rows[0], testing::ElementsAre("a", "b,c", "d\"e"));
  EXPECT_THAT(rows[1], testing::ElementsAre("x\ny", "", ""));
  EXPECT_THAT(rows[2], testing::ElementsAre("1"));
  EXPECT_THAT(message_of<ParseError>([] { parse_csv("a\n\"b", "f"); }), HasSubstr("f:2"));
}

TEST(csv, numbers_have_separators_and_units) {
  EXPECT_EQ(parse_number("1,234,567.5"), 1234567.5);
  EXPECT_EQ(parse_number(" 7 "), 7);
  EXPECT_FALSE(parse_number("PolicySpread"));
  EXPECT_FALSE(parse_number("12 ms"));
  EXPECT_FALSE(parse_number(""));
  EXPECT_FALSE(parse_number("nan")) << "what could not be counted is absent";
  EXPECT_EQ(unit_scale("usecond"), 1e3);
  EXPECT_EQ(unit_scale("Tbyte/s"), 1e12);
  EXPECT_EQ(unit_scale("byte/block"), 1);
  EXPECT_EQ(unit_scale("%"), 1);
}

TEST(import, the_raw_page_of_ncu_gives_counters_and_waste) {
  const Document d = load_any(fixture("ncu_raw.csv"));
  EXPECT_EQ(d.kind, "ncu");
  EXPECT_EQ(d.machine_key, "NVIDIA H200") << "where it was recorded, not this machine";
  EXPECT_EQ(d.machine["device"]["arch"], "sm_90");
  ASSERT_EQ(d.kernels.size(), 6u);
  const auto kernel = [&](const std::string& name) -> const KernelUse& {
    for (const auto& k : d.kernels)
      if (short_name(k.name) == name) return k;
    throw std::out_of_range(name);
  };
  const KernelUse& clean = kernel("k_clean");
  EXPECT_EQ(clean.registers, 16u);
  EXPECT_EQ(clean.grid, (measure::Triple{16384, 1, 1}));
  EXPECT_EQ(clean.block, (measure::Triple{256, 1, 1}));
  ASSERT_EQ(clean.us.size(), 1u);
  EXPECT_DOUBLE_EQ(clean.us[0], 31.232);
  EXPECT_DOUBLE_EQ(clean.counters.at("dram__bytes_read.sum"), 67118592);
  EXPECT_FALSE(clean.counters.count("device__attribute_l2_cache_size")) << "of the device, not of a kernel";
  EXPECT_DOUBLE_EQ(clean.metrics[Metric::achieved_occupancy_pct].number(), 76.76);
  EXPECT_EQ(clean.metrics[Metric::achieved_occupancy_pct].from, "ncu");
  EXPECT_DOUBLE_EQ(kernel("k_bank").metrics[Metric::shared_bank_conflicts].number(), 32736000);
  EXPECT_DOUBLE_EQ(kernel("k_strided").metrics[Metric::global_load_efficiency_pct].number(), 12.5);
  std::string found;
  for (const auto& w : d.waste) found += w.title + " in " + short_name(w.kernel) + "; ";
  EXPECT_THAT(found, HasSubstr("uncoalesced access in k_strided"));
  EXPECT_THAT(found, HasSubstr("bank conflicts in k_bank"));
  EXPECT_THAT(found, HasSubstr("divergence in k_diverge"));
  EXPECT_THAT(found, HasSubstr("spills or local arrays in k_spill"));
  EXPECT_THAT(found, testing::Not(HasSubstr("k_clean")));
  EXPECT_THAT(found, testing::Not(HasSubstr("k_fma")));
  EXPECT_TRUE(std::is_sorted(d.waste.begin(), d.waste.end(),
                             [](const Waste& a, const Waste& b) { return a.percent > b.percent; }));
}

TEST(import, the_details_page_of_ncu_is_read_behind_the_programs_output) {
  const Document d = load_any(fixture("ncu_details.csv"));
  ASSERT_EQ(d.kernels.size(), 1u);
  const KernelUse& clean = d.kernels[0];
  EXPECT_EQ(short_name(clean.name), "k_clean");
  ASSERT_EQ(clean.us.size(), 1u);
  EXPECT_DOUBLE_EQ(clean.us[0], 31.17);
  EXPECT_EQ(clean.registers, 16u);
  EXPECT_DOUBLE_EQ(clean.counters.at("dram__bytes.sum.per_second"), 3.58e12);
  EXPECT_DOUBLE_EQ(clean.metrics[Metric::l2_hit_rate_pct].number(), 50.47);
  EXPECT_DOUBLE_EQ(clean.metrics[Metric::ipc].number(), 0.35);
  EXPECT_EQ(clean.metrics[Metric::divergent_branches].present(), false) << "the page does not tell";
  const auto& advice = d.more["advice"];
  bool occupancy = false;
  for (const auto& a : advice)
    if (a["rule"] == "AchievedOccupancy") {
      occupancy = true;
      EXPECT_DOUBLE_EQ(a["estimated_gain_pct"].get<double>(), 23.34);
      EXPECT_EQ(a["of"], "kernel");
    }
  EXPECT_TRUE(occupancy);
}

TEST(import, the_source_page_of_ncu_names_the_instruction) {
  const std::string page =
      "\"Kernel Name\",\"fill(float *, int)\"\n"
      "\"Address\",\"Source\",\"Instructions Executed\",\"L2 Theoretical Sectors Global\","
      "\"L2 Theoretical Sectors Global Ideal\",\"L1 Wavefronts Shared\",\"Something New\"\n"
      "\"0x10\",\"  LDG.E R4, [R2.64]\",\"1,000\",\"32,000\",\"4,000\",\"0\",\"x\"\n"
      "\"0x20\",\"  STG.E [R6.64], R4\",\"1,000\",\"4,000\",\"4,000\",\"0\",\"x\"\n";
  const Document d = load_any(written("source.csv", page));
  ASSERT_EQ(d.kernels.size(), 1u);
  EXPECT_EQ(d.kernels[0].launches, 1u);
  EXPECT_DOUBLE_EQ(d.kernels[0].counters.at("sass__memory_l2_theoretical_sectors_global"), 36000);
  ASSERT_EQ(d.waste.size(), 1u);
  EXPECT_EQ(d.waste[0].title, "uncoalesced access");
  EXPECT_THAT(d.waste[0].evidence, HasSubstr("0x10 LDG.E R4, [R2.64]: 32.0 an access, 4.0 would do"));
  EXPECT_EQ(d.more["instructions"][0]["rows"].size(), 2u);
}

TEST(import, a_report_file_of_ncu_is_read_without_ncu) {
  const std::string path = written("one.ncu-rep", report_file());
  const Document d = load_any(path);
  ASSERT_EQ(d.kernels.size(), 1u);
  EXPECT_EQ(d.kernels[0].name, "_Z4fillPfi");
  EXPECT_EQ(d.kernels[0].grid, (measure::Triple{64, 2, 1}));
  EXPECT_EQ(d.kernels[0].block, (measure::Triple{128, 1, 1}));
  EXPECT_EQ(d.kernels[0].registers, 40u);
  EXPECT_THAT(d.kernels[0].us, testing::ElementsAre(12.5));
  EXPECT_FALSE(d.kernels[0].counters.count("device__attribute_architecture"));
  EXPECT_EQ(d.machine["device"]["name"], "NVIDIA H200");
  EXPECT_EQ(d.machine["device"]["arch"], "sm_90");
  const auto& rows = d.more["instructions"][0]["rows"];
  ASSERT_EQ(rows.size(), 2u) << "an instance that is no address is no instruction";
  EXPECT_EQ(rows[1]["address"], 0x7f0040);
  EXPECT_EQ(rows[1]["values"]["memory_l2_theoretical_sectors_global"], 4096);
  ASSERT_FALSE(d.waste.empty());
  EXPECT_THAT(d.waste[0].evidence, HasSubstr("0x7f0040: 32.0 an access, 4.0 would do"));
}

TEST(import, a_report_that_is_cut_off_says_how_to_go_on) {
  const std::string whole = report_file();
  for (const std::size_t n : {std::size_t(6), std::size_t(20), whole.size() / 2, whole.size() - 1}) {
    const std::string path = written("cut.ncu-rep", whole.substr(0, n));
    const std::string text = message_of<ParseError>([&] { load_any(path); });
    EXPECT_THAT(text, HasSubstr("--csv --page raw --print-units base")) << n;
  }
  std::string other = whole;
  other[12] = '\x7f';  // a field of a type that there is not
  EXPECT_THROW(read_ncu_report(other, "x"), ParseError);
}

TEST(import, a_recording_of_nsys_is_a_timeline) {
  const std::string path = testing::TempDir() + "cgp_import_nsys.sqlite";
  if (!run_sql(path, kNsysTables)) GTEST_SKIP() << "needs libsqlite3";
  const Timeline t = load_timeline(path);
  const auto s = summarise(t);
  EXPECT_EQ(s.launches, 3u);
  EXPECT_EQ(s.copies, 1u);
  EXPECT_NEAR(s.kernel_ms, 0.016, 1e-9);
  EXPECT_NEAR(s.launch_us, 2, 1e-9) << "calls belong to the launches of their own process";
  EXPECT_NEAR(s.launch_api_ms, 0.006, 1e-9);
  const Document d = load_any(path);
  EXPECT_EQ(d.machine_key, "NVIDIA H200");
  ASSERT_EQ(d.kernels.size(), 2u) << "one without a mangled name stays by its other name";
  EXPECT_EQ(short_name(d.kernels[0].name), "fill");
  EXPECT_EQ(d.kernels[0].us.size() + d.kernels[1].us.size(), 3u);
  EXPECT_EQ(d.kernels[0].registers, 40u);
  EXPECT_EQ(d.kernels[0].dynamic_shared, 1024u);
  EXPECT_NEAR(d.metrics[Metric::h2d_bandwidth_gbps].number(), 65536 / 2e-6 * 1e-9, 1e-6);
  for (const auto& a : t.activities) EXPECT_EQ(a.pageable, a.kind == Activity::Kind::copy);
  EXPECT_THAT(d.notes, testing::Contains(HasSubstr("1 NVTX ranges")));
  EXPECT_THAT(d.more["timeline_svg"].get<std::string>(), HasSubstr("fill"));
}

TEST(import, databases_of_others_and_recordings_without_kernels_say_so) {
  const std::string path = testing::TempDir() + "cgp_import_other.sqlite";
  if (!run_sql(path, "CREATE TABLE cats (name TEXT)")) GTEST_SKIP() << "needs libsqlite3";
  EXPECT_THAT(message_of<ParseError>([&] { load_any(path); }), HasSubstr("nsys export --type sqlite"));
  run_sql(path, "CREATE TABLE StringIds (id INTEGER, value TEXT)");
  EXPECT_THAT(load_any(path).notes, testing::Contains(HasSubstr("nothing of CUDA")));
}

TEST(import, the_table_of_nsys_stats_is_a_timeline_without_calls) {
  const std::string table =
      "Start (ns),Duration (ns),CorrId,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Reg/Trd,StcSMem (MB),DymSMem (MB),"
      "Bytes (MB),Throughput (MBps),SrcMemKd,DstMemKd,Device,Ctx,Strm,Name\n"
      "1000,2000,4,,,,,,,,,,0.066,32768.0,Pageable,Device,NVIDIA H200 (0),1,7,[CUDA memcpy Host-to-Device]\n"
      "5000,4000,5,64,2,1,128,1,1,40,0.000,0.001,,,,,NVIDIA H200 (0),1,7,\"fill(float *, int)\"\n"
      "9500,100,6,,,,,,,,,,0.001,10.0,Device,,NVIDIA H200 (0),1,7,[CUDA memset]\n";
  const Document d = load_any(written("trace.csv", table));
  ASSERT_EQ(d.kernels.size(), 1u);
  EXPECT_EQ(short_name(d.kernels[0].name), "fill");
  EXPECT_THAT(d.kernels[0].us, testing::ElementsAre(4.0));
  EXPECT_EQ(d.kernels[0].dynamic_shared, 1000u);
  EXPECT_EQ(d.more["timeline"]["copies"], 1);
  EXPECT_NEAR(d.metrics[Metric::h2d_bandwidth_gbps].number(), 66000 / 2e-6 * 1e-9, 1e-6);
  EXPECT_THROW(read_nsys_csv(table + "1,2,3\n", "f"), ParseError);
}

TEST(import, imported_profiles_are_compared_and_hold_contracts) {
  const Document a = load_any(fixture("ncu_raw.csv"));
  Document b = a;
  for (auto& k : b.kernels)
    if (short_name(k.name) == "k_bank") k.counters["l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum"] = 0;
  bool conflicts = false;
  for (const auto& row : diff_documents(a, b, 0.12, 0.03)) {
    if (row.name.find("k_bank") == std::string::npos || row.name.find("conflicts") == std::string::npos)
      continue;
    conflicts = true;
    EXPECT_EQ(row.verdict, "IMPROVED") << "exact counts of kernels are compared by name";
  }
  EXPECT_TRUE(conflicts);
  const auto contract = parse_contract(
      "name: c\nhardware: {gpu: H200}\nchecks:\n  - name: no conflicts\n    check: "
      "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum == 0\n",
      "c.yaml");
  EXPECT_EQ(check(contract, a)[0].outcome, Outcome::fail);
  EXPECT_EQ(check(contract, b)[0].outcome, Outcome::pass);
  const std::string yaml = generate_contract(a, "h200", 0.1);
  EXPECT_EQ(yaml.find("kernel:"), std::string::npos) << "it cannot be measured again here";
  EXPECT_THAT(yaml, HasSubstr("gpu: \"NVIDIA H200\""));
}

TEST(import, one_kernel_of_many_is_kept) {
  Document d = load_any(fixture("ncu_raw.csv"));
  keep_kernels(d, "k_bank");
  ASSERT_EQ(d.kernels.size(), 1u);
  EXPECT_DOUBLE_EQ(d.metrics[Metric::shared_bank_conflicts].number(), 32736000);
  EXPECT_THAT(message_of<ArgumentError>([&] { keep_kernels(d, "nothing"); }), HasSubstr("there are k_bank"));
}

TEST(import, files_of_no_known_kind_are_refused_as_such) {
  for (const char* content : {"", "# Notes\n", "\x7f\x45LF\x02"}) {
    const std::string path = written("x.ncu-rep", content);
    const auto what = message_of<ParseError>([&] { load_any(path); });
    EXPECT_THAT(what, HasSubstr("must be a profile of cgp or a report of ncu or nsys"));
    EXPECT_THAT(what, HasSubstr(*content ? "begins like none of" : "it is empty"));
  }
}
