// Around the command line: --help, --version, configuration files, foreign locales.
#include <gtest/gtest.h>

#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "bench/row.hpp"
#include "tests/bench_command_line.hpp"

namespace weft {
namespace {

std::string help_text(std::string_view pattern) {
  Options options;
  std::vector<std::string> arguments{"program", "--help", "--frobnicate"};
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  testing::internal::CaptureStdout();
  EXPECT_FALSE(parse_options(3, argv.data(), pattern_named(pattern), options, true));
  return testing::internal::GetCapturedStdout();
}

TEST(Options, HelpTellsUnitsDefaultsAndExitCodes) {
  const std::string help = help_text("tp-allgather");
  for (const char* part : {"weft-tp-allgather", "--sizes", "powers of 1024", "powers of 1000",
                           "meets it", "Exit:", "4 timed out", "mpiexec -n 4", "--ranks-per-host",
                           "default 2%", "--keep-gathered"}) {
    EXPECT_NE(help.find(part), std::string::npos) << part << " is not in\n" << help;
  }
  for (const char* part : {"--zero", "--inject", "--experts", " N ..."}) {
    EXPECT_EQ(help.find(part), std::string::npos) << part;
  }
  std::istringstream lines(help);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << line;
}

TEST(Options, HelpAndVersionEndTheRunQuietlyOnOtherRanks) {
  Options options;
  testing::internal::CaptureStdout();
  EXPECT_FALSE(parse({"--help"}, options));
  EXPECT_FALSE(parse({"--version"}, options));
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
}

class ConfigFile : public testing::Test {
 protected:
  std::string write(const std::string& text) {
    std::ofstream(path_) << text;
    return path_;
  }
  ~ConfigFile() override { std::remove(path_.c_str()); }
  std::string path_ = testing::TempDir() + "weft_config_" +
                      testing::UnitTest::GetInstance()->current_test_info()->name();
};

TEST_F(ConfigFile, SetsWhatTheCommandLineDoesNot) {
  write(
      "# a comment\ntransport = [\"shm\", \"mpi\"]\ntp = 4\nseq = 256\nno-bias = true\nno-verify = "
      "false\nprecision = \"1%\"\n");
  const Options options = parsed({"--config", path_, "--seq", "64"});
  EXPECT_EQ(options.transports, (std::vector<std::string>{"shm", "mpi"}));
  EXPECT_TRUE(options.transports_given && options.layout_given);
  EXPECT_EQ(options.layout.tp, 4);
  EXPECT_EQ(options.pattern.seq, 64);
  EXPECT_FALSE(options.pattern.bias);
  EXPECT_TRUE(options.verify);
  EXPECT_DOUBLE_EQ(options.precision, 0.01);
}

TEST_F(ConfigFile, Mistakes) {
  expect_error_with("/no/such.toml", {"--config", "/no/such.toml"});
  expect_error_with("'transprot'", {"--config", write("transprot = mpi\n")});
  expect_error_with("--tp: 'two'", {"--config", write("tp = two\n")});
  expect_error_with("--precision takes one value", {"--config", write("precision = 0,5%\n")});
  expect_error_with("--model", {"--config", write("sizes = \"8\"\nmodel = \"tiny\"\n")});
}

/// Makes a locale with a decimal comma, in which this process then is. False where the system has
/// no sources of locales.
bool use_decimal_comma() {
  const std::string folder = testing::TempDir() + "weft_locale";
  const std::string locale = folder + "/de_DE.UTF-8";  // kept: it takes a second or two
  const std::string make = "test -d " + locale + " || { mkdir -p " + folder +
                           " && localedef -i de_DE -f UTF-8 " + locale + "; } >/dev/null 2>&1";
  static_cast<void>(std::system(make.c_str()) == 0);
  ::setenv("LOCPATH", folder.c_str(), 1);
  return std::setlocale(LC_ALL, "de_DE.UTF-8") != nullptr;
}

TEST(Options, DecimalCommaLocaleChangesNothing) {
  if (!use_decimal_comma()) GTEST_SKIP() << "no locale with a decimal comma can be had here";
  Row row;
  row.set("t_p50_us", 12.5);
  EXPECT_EQ(row.get("t_p50_us"), "12.5");
  EXPECT_EQ(row.number("t_p50_us"), 12.5);
  const Options options = parsed({"--precision", "0.5%", "--min-time", "0.25", "--sizes", "1.5K"});
  std::setlocale(LC_ALL, "C");
  EXPECT_DOUBLE_EQ(options.precision, 0.005);
  EXPECT_DOUBLE_EQ(options.min_time, 0.25);
  EXPECT_EQ(options.sizes, std::vector<Bytes>{1536});
}

}  // namespace
}  // namespace weft
