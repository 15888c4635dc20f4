// The worked example of proto/PROTOCOL.md, byte for byte.
#include <gtest/gtest.h>

#include <unistd.h>

#include <fstream>

#include "common/error.h"
#include "common/protocol.h"
#include "proto/wire.pb.h"

namespace muster {
namespace {

TEST(Protocol, TheWorkedExample) {
  wire::WorkerMessage message;
  message.mutable_address()->set_job(0x1122334455667788);
  message.mutable_address()->set_rank(1);
  wire::GradientPart& part = *message.mutable_gradient_part();
  part.set_step(3);
  part.set_chunk(0);
  part.mutable_subtree()->set_level(0);
  part.mutable_subtree()->set_index(1);
  const unsigned char expected[] = {0x0a, 0x0b, 0x09, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33,
                                    0x22, 0x11, 0x10, 0x01, 0x2a, 0x0a, 0x08, 0x03, 0x10,
                                    0x00, 0x1a, 0x04, 0x08, 0x00, 0x10, 0x01};
  const std::string bytes = message.SerializeAsString();
  EXPECT_EQ(bytes, std::string(expected, expected + sizeof expected));
}

TEST(Protocol, TokenFiles) {
  const std::string path = ::testing::TempDir() + "/token-" + std::to_string(::getpid());
  const auto read = [&](const std::string& text) {
    std::ofstream(path) << text;
    return ReadToken(path);
  };
  EXPECT_EQ(read("0123456789abcdef0123456789abcdef\n"), "0123456789abcdef0123456789abcdef");
  EXPECT_THROW(read(""), Error);
  EXPECT_THROW(read("0123456789abcdef"), Error);
  EXPECT_THROW(read("0123456789ABCDEF0123456789abcdef"), Error);
  ::unlink(path.c_str());
  EXPECT_THROW(ReadToken(path), Error);
}

}  // namespace
}  // namespace muster
