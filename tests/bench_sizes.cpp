// Sizes, series of sizes and token matrices: each text runs what --help foretells, or is an error
// that quotes it.
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "bench/options.hpp"
#include "patterns/error.hpp"

namespace weft {
namespace {

/// The message of the usage error that `run` throws.
template <class Run>
std::string usage_error(Run&& run) {
  try {
    run();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    return error.what();
  }
  return "(no error)";
}

std::string sizes_error(const std::string& text) {
  return usage_error([&] { parse_sizes(text); });
}

TEST(Size, SuffixesAndTheirBases) {
  EXPECT_EQ(parse_size("4096"), 4096);
  EXPECT_EQ(parse_size("64K"), 65536);
  EXPECT_EQ(parse_size("64KiB"), 65536);
  EXPECT_EQ(parse_size("64k"), 65536);
  EXPECT_EQ(parse_size("64KB"), 64000);
  EXPECT_EQ(parse_size("2M"), 2097152);
  EXPECT_EQ(parse_size("1G"), 1073741824);
  EXPECT_EQ(parse_size("1GB"), 1000000000);
  EXPECT_EQ(parse_size("2T"), 2199023255552);
  EXPECT_EQ(parse_size("3TB"), 3000000000000);
  EXPECT_EQ(parse_size("12B"), 12);
  EXPECT_EQ(parse_size(" 8 "), 8);
}

TEST(Size, PointAndExponentWhereWhole) {
  EXPECT_EQ(parse_size("1e6"), 1000000);
  EXPECT_EQ(parse_size("1.5K"), 1536);
  EXPECT_EQ(parse_size("2.5e3"), 2500);
  for (const char* text : {"1.3", "0.1K", "1e-3", "1e300", "1.2.3"}) {
    EXPECT_NE(usage_error([&] { parse_size(text); }).find(text), std::string::npos) << text;
  }
}

TEST(Size, WhatIsNone) {
  for (const char* text : {"", "-8", "K", "8X", "8Q", "8KK", "8KiBs", "0x10", "nan", "inf", "1,5",
                           "8Gx2", "99999999T", "9223372036854775808", "+8", "e6"}) {
    const std::string error = usage_error([&] { parse_size(text); });
    EXPECT_NE(error.find("'" + std::string(text) + "'"), std::string::npos)
        << text << ": " << error;
  }
  EXPECT_EQ(parse_size("9223372036854775807"), INT64_MAX);
}

TEST(Sizes, SeriesThatMeetTheirEnds) {
  EXPECT_EQ(parse_sizes("8:64:x2"), (std::vector<Bytes>{8, 16, 32, 64}));
  EXPECT_EQ(parse_sizes("8:64"), (std::vector<Bytes>{8, 16, 32, 64}));
  EXPECT_EQ(parse_sizes("4K:64K:x4"), (std::vector<Bytes>{4096, 16384, 65536}));
  EXPECT_EQ(parse_sizes("64M:70M:+2M"),
            (std::vector<Bytes>{67108864, 69206016, 71303168, 73400320}));
  EXPECT_EQ(parse_sizes("5:5"), (std::vector<Bytes>{5}));
  EXPECT_EQ(parse_sizes("1e6:1e6"), (std::vector<Bytes>{1000000}));
  EXPECT_EQ(parse_sizes(" 8:16:x2"), (std::vector<Bytes>{8, 16}));
  EXPECT_EQ(parse_sizes("8:1GiB:x2").size(), 28u);
  EXPECT_EQ(parse_sizes("8:1GiB:x2").back(), 1073741824);
}

TEST(Sizes, SeriesThatMissTheirEnd) {
  EXPECT_EQ(parse_sizes("3:29:x3"), (std::vector<Bytes>{3, 9, 27}));
  EXPECT_EQ(parse_sizes("1:10:+4"), (std::vector<Bytes>{1, 5, 9}));
  EXPECT_EQ(parse_sizes("8:1GB:x2").back(), 536870912);
  EXPECT_EQ(parse_sizes("1:1K:x2").size(),
            11u);  // not multiples of f32: refused where the type is known
}

TEST(Sizes, ListsAreSortedWithoutRepeats) {
  EXPECT_EQ(parse_sizes("64,8:32:x2,16, 1K"), (std::vector<Bytes>{8, 16, 32, 64, 1024}));
}

TEST(Sizes, EveryBadPartIsQuoted) {
  for (const char* part :
       {"8:1G:x1", "8:1G:x0", "64M:70M:2M", "0:64:x2", "1K:1:x2", "8:8Gx2", "8:1G:x1.5", "-8:8:x2",
        "8:99999999T:x2", "8:64:x-2", "8:64:+0", "8:64:*2", "8:64:x", "8:64:", "8::x2", ":8",
        "8:16:x2:3", "8:64:+-8", "0"}) {
    EXPECT_NE(sizes_error(std::string("16,") + part).find(part), std::string::npos)
        << part << ": " << sizes_error(part);
  }
  EXPECT_NE(sizes_error("8,,16").find("8,,16"), std::string::npos);
}

TEST(Sizes, EndAtTheLastSizeThatFits) {
  EXPECT_EQ(parse_sizes("4611686018427387904:9223372036854775807:x2"),
            (std::vector<Bytes>{4611686018427387904}));
  EXPECT_EQ(parse_sizes("9223372036854775806:9223372036854775807:+8"),
            (std::vector<Bytes>{9223372036854775806}));
}

TEST(Sizes, MillionsOfSizesAreASlip) {
  EXPECT_NE(sizes_error("8:1T:+1").find("10000"), std::string::npos);
}

TEST(Sizes, Text) {
  EXPECT_EQ(size_text(8), "8 B");
  EXPECT_EQ(size_text(1000), "1000 B");
  EXPECT_EQ(size_text(65536), "64 KiB");
  EXPECT_EQ(size_text(50331648), "48 MiB");
  EXPECT_EQ(size_text(1000000), "1000 KB");
  EXPECT_EQ(size_text(25000000), "25 MB");
  EXPECT_EQ(size_text(2147483652), "2.00 GiB");
}

class TokenMatrix : public testing::Test {
 protected:
  std::string write(const std::string& text) {
    std::ofstream(path_) << text;
    return path_;
  }
  ~TokenMatrix() override { std::remove(path_.c_str()); }
  std::string path_ = testing::TempDir() + "weft_matrix_" +
                      testing::UnitTest::GetInstance()->current_test_info()->name();
};

TEST_F(TokenMatrix, ReadsPlainAndSpreadsheetFiles) {
  const std::vector<std::vector<Index>> expected{{0, 3}, {5, 0}};
  EXPECT_EQ(read_token_matrix(write("0,3\n5,0\n")), expected);
  EXPECT_EQ(read_token_matrix(write("\xEF\xBB\xBF# tokens\r\n0, 3\r\n\r\n5 ,0")), expected);
  EXPECT_EQ(read_token_matrix(write("0")), (std::vector<std::vector<Index>>{{0}}));
}

TEST_F(TokenMatrix, ErrorsNameFileAndLine) {
  for (const char* text : {"0,3\n5\n", "0,3\n5,x\n", "0,3\n5,-1\n", "0,3\n5,1.5\n", "0,3\n5,,\n",
                           "0,3\n5,4294967296\n"}) {
    const std::string error = usage_error([&] { read_token_matrix(write(text)); });
    EXPECT_NE(error.find(path_ + ": line 2"), std::string::npos) << error;
  }
  EXPECT_NE(usage_error([&] { read_token_matrix(write("\n")); }).find(path_), std::string::npos);
  EXPECT_NE(usage_error([&] { read_token_matrix("/no/such/file"); }).find("/no/such/file"),
            std::string::npos);
  EXPECT_NE(usage_error([&] { read_token_matrix("/tmp"); }).find("/tmp"), std::string::npos);
}

}  // namespace
}  // namespace weft
