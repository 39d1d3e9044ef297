#include <gtest/gtest.h>

#include "rondo/base/error.h"
#include "rondo/env/address.h"
#include "rondo/env/sources/slurm.h"

namespace rondo::env::parse_test {
namespace {

using Names = std::vector<std::string>;

TEST(NodeList, ExpandsSlurmsLists) {
  EXPECT_EQ(expand_node_list("gnode[10,20,25-27],n[01-03]", "list"),
            (Names{"gnode10", "gnode20", "gnode25", "gnode26", "gnode27", "n01", "n02", "n03"}));
  EXPECT_EQ(expand_node_list("login", "list"), (Names{"login"}));
  EXPECT_EQ(expand_node_list("a,b[1],c-2", "list"), (Names{"a", "b1", "c-2"}));
  EXPECT_EQ(expand_node_list("n[8-11]", "list"), (Names{"n8", "n9", "n10", "n11"}));
  EXPECT_EQ(expand_node_list("n[098-101]-ib", "list"), (Names{"n098-ib", "n099-ib", "n100-ib", "n101-ib"}));
  EXPECT_EQ(expand_node_list("r[1-2]n[1-2]", "list"), (Names{"r1n1", "r1n2", "r2n1", "r2n2"}));
  EXPECT_TRUE(expand_node_list("", "list").empty());
}

TEST(NodeList, NamesWhatIsMalformed) {
  for (const char* text : {"n[", "n[1", "n[1-", "n[1-]", "n[]", "n[a]", "n[3-1]", "n]", ",a", "a,", "a,,b",
                           "n[1;2]", "n[1-9999999999]", "n[1-900000],m[1-900000]", "a b"}) {
    try {
      expand_node_list(text, "SLURM_JOB_NODELIST");
      ADD_FAILURE() << text;
    } catch (const UsageError& e) {
      EXPECT_NE(std::string(e.what()).find("SLURM_JOB_NODELIST"), std::string::npos) << e.what();
      EXPECT_NE(std::string(e.what()).find(text), std::string::npos) << e.what();
    }
  }
}

TEST(NodeList, Compresses) {
  EXPECT_EQ(compress_node_list({"n01", "n02", "n03", "n07", "m1", "head"}), "n[01-03,07],m1,head");
  EXPECT_EQ(compress_node_list({}), "");
}

TEST(TasksPerNode, Expands) {
  EXPECT_EQ(expand_tasks_per_node("2(x3),1", "t"), (std::vector<int>{2, 2, 2, 1}));
  EXPECT_EQ(expand_tasks_per_node("4", "t"), (std::vector<int>{4}));
  EXPECT_EQ(expand_tasks_per_node("1(x4)", "t"), (std::vector<int>{1, 1, 1, 1}));
  for (const char* text : {"", "x", "2(3)", "2(x3", "2(x)", "2,,1", "2(x3)1", "2(x9999999)"}) {
    EXPECT_THROW(expand_tasks_per_node(text, "SLURM_TASKS_PER_NODE"), UsageError) << text;
  }
}

TEST(HostPort, MayBeAnIpv6Address) {
  const auto split = [](const char* text) {
    const HostPort parts = split_host_port(text);
    return parts.host + " " + parts.port;
  };
  EXPECT_EQ(split("host:29500"), "host 29500");
  EXPECT_EQ(split("host"), "host ");
  EXPECT_EQ(split("host:"), "host ");
  EXPECT_EQ(split(":80"), " 80");
  EXPECT_EQ(split("[::1]:29500"), "::1 29500");
  EXPECT_EQ(split("[fe80::1%eth0]"), "fe80::1%eth0 ");
  EXPECT_EQ(split("::1"), "::1 ");
  EXPECT_EQ(split(""), " ");
  EXPECT_EQ(without_brackets("[::1]"), "::1");
  EXPECT_EQ(without_brackets("[]"), "[]");
}

TEST(InitMethod, ReadsTheThreeForms) {
  EXPECT_EQ(parse_init_method("").kind, InitMethod::Kind::environment);
  EXPECT_EQ(parse_init_method("env://").kind, InitMethod::Kind::environment);
  const InitMethod file = parse_init_method("file:///tmp/meet here");
  EXPECT_EQ(file.kind, InitMethod::Kind::file);
  EXPECT_EQ(file.path, "/tmp/meet here");
  const InitMethod tcp = parse_init_method("tcp://[::1]:29500");
  EXPECT_EQ(tcp.kind, InitMethod::Kind::tcp);
  EXPECT_EQ(tcp.host, "::1");
  EXPECT_EQ(tcp.port, 29500);
}

TEST(InitMethod, NamesWhatIsMalformed) {
  for (const char* text : {"env", "file://", "file://relative", "tcp://", "tcp://host",
                           "tcp://host:", "tcp://:1", "tcp://h:0", "tcp://h:65536", "tcp://h:x", "mpi://"}) {
    try {
      parse_init_method(text);
      ADD_FAILURE() << text;
    } catch (const UsageError& e) {
      EXPECT_NE(std::string(e.what()).find(text), std::string::npos) << e.what();
    }
  }
}

}  // namespace
}  // namespace rondo::env::parse_test
