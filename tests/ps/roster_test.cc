// Which workers may join a job, and the reason that others receive.
#include "ps/members/roster.h"

#include <gmock/gmock-more-matchers.h>
#include <gtest/gtest.h>

#include "common/link/protocol.h"

namespace muster {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr const char* kToken = "00112233445566778899aabbccddeeff";

VariableLayout Layout(int64_t units = 4, std::vector<std::string> description = {"fc dense 4"}) {
  std::vector<Variable> variables(2);
  variables[0] = {.name = "fc/weights", .shape = {units, 8}, .count = 8 * 4};
  variables[1] = {.name = "fc/bias", .kind = Variable::Kind::kBias, .shape = {units}, .count = 4};
  return VariableLayout(std::move(variables), std::move(description));
}

class RosterTest : public ::testing::Test {
 protected:
  // A matching worker's Hello with this layout.
  static wire::Hello Hello(const VariableLayout& layout, int64_t pid = 77) {
    wire::Hello hello;
    hello.set_protocol_version(kProtocolVersion);
    hello.set_token(kToken);
    hello.set_host("lab3");
    hello.set_pid(pid);
    hello.set_threads(2);
    hello.set_graph_hash(layout.hash());
    for (const Variable& variable : layout.variables()) {
      wire::VariableShape& shape = *hello.add_variable();
      shape.set_name(variable.name);
      for (const int64_t extent : variable.shape) shape.add_shape(extent);
    }
    for (const std::string& line : layout.description()) hello.add_layer(line);
    hello.set_train_samples(100);
    hello.set_test_samples(10);
    hello.set_data_fingerprint(5);
    hello.add_setting("run.seed: 1");
    hello.set_process(static_cast<uint64_t>(pid) * 1000);
    return hello;
  }
  wire::Hello Hello() const { return Hello(layout_); }
  static wire::Address Address(uint32_t rank, uint32_t incarnation = 0) {
    wire::Address address;
    address.set_job(9);
    address.set_rank(rank);
    address.set_incarnation(incarnation);
    return address;
  }
  // Why this Hello is refused, or "".
  std::string Refusal(wire::Hello hello, uint32_t rank = 1) {
    hello.set_rank(rank);
    return roster_.Join(40 + rank, hello, now_).refusal;
  }
  void Seat(uint32_t rank) { EXPECT_EQ(Refusal(Hello(), rank), ""); }

  const Roster::Time now_{};
  VariableLayout layout_ = Layout();
  Roster roster_{layout_, {.token = kToken, .job = 9, .workers = 3, .settings = {"run.seed: 1"}}};
};

TEST_F(RosterTest, DataThatNobodyHasAreRefused) {
  for (const auto& [train, test] :
       {std::pair<int64_t, int64_t>{INT64_MAX, 0}, {100, -1}, {100, INT64_MAX}, {-1, 10}}) {
    wire::Hello hello = Hello();
    hello.set_train_samples(train);
    hello.set_test_samples(test);
    EXPECT_THAT(Refusal(hello), HasSubstr("samples"));
  }
}

TEST_F(RosterTest, WorkersTakeTheirSeatsInAnyOrder) {
  EXPECT_THAT(roster_.MissingRanks(), ElementsAre(0, 1, 2));
  Seat(2);
  EXPECT_THAT(roster_.MissingRanks(), ElementsAre(0, 1));
  EXPECT_EQ(roster_.RankOf(42), 2u);
  EXPECT_EQ(roster_.RankOf(41), std::nullopt);
  EXPECT_EQ(roster_.Name(2), "rank 2 (host lab3, pid 77)");
  EXPECT_EQ(roster_.data().train_samples, 100);
  EXPECT_EQ(roster_.data().test_samples, 10);
  Seat(0);
  EXPECT_THAT(roster_.MissingRanks(), Not(IsEmpty()));
  Seat(1);
  EXPECT_THAT(roster_.MissingRanks(), IsEmpty());
}

TEST_F(RosterTest, ASeatIsTakenOnce) {
  Seat(1);
  EXPECT_EQ(Refusal(Hello()), "rank 1 is taken by host lab3, pid 77");
  EXPECT_EQ(roster_.RankOf(41), 1u);
}

TEST_F(RosterTest, NobodyWithAnotherTokenVersionOrRank) {
  wire::Hello hello = Hello();
  hello.set_token("00112233445566778899aabbccddeefe");
  EXPECT_EQ(Refusal(hello), kWrongToken);
  hello = Hello();
  hello.set_protocol_version(kProtocolVersion + 1);
  EXPECT_THAT(Refusal(hello), HasSubstr("use the same release"));
  EXPECT_EQ(Refusal(Hello(), 3), "rank 3 is out of range: this job has ranks 0 to 2");
  EXPECT_THAT(roster_.MissingRanks(), ElementsAre(0, 1, 2));
}

// If more workers may join than the job starts with, they may also join before the start.
TEST_F(RosterTest, SeatsBeyondThoseThatTheJobStartsWith) {
  Roster roster(layout_,
                {.token = kToken, .job = 9, .workers = 2, .settings = {"run.seed: 1"}, .seats = 4});
  const auto join = [&](std::optional<uint32_t> rank) {
    wire::Hello hello = Hello();
    if (rank) hello.set_rank(*rank);
    static PeerId peer = 0;
    return roster.Join(++peer, hello, now_);
  };
  EXPECT_EQ(join(3).refusal, "");
  EXPECT_EQ(join(4).refusal, "rank 4 is out of range: this job has ranks 0 to 3");
  EXPECT_THAT(roster.MissingRanks(), ElementsAre(0, 1));
  EXPECT_EQ(join({}).rank, 0u);
  EXPECT_EQ(join({}).rank, 1u);
  EXPECT_THAT(roster.MissingRanks(), IsEmpty());
  EXPECT_EQ(roster.at(1).state, MemberState::kPreparing);
  EXPECT_EQ(roster.at(3).state, MemberState::kWaiting);
  roster.Open();
  EXPECT_EQ(join({}).rank, 2u);
  EXPECT_EQ(roster.at(2).state, MemberState::kPreparing);
  EXPECT_EQ(join({}).refusal, "all 4 ranks of this job are taken");
}

TEST_F(RosterTest, LeavingWorkersGetNoNewOrders) {
  for (const uint32_t rank : {0, 1, 2}) {
    Seat(rank);
    roster_.at(rank).state = MemberState::kReady;
  }
  roster_.at(0).weights_from = roster_.at(1).weights_from = 4;
  roster_.at(0).leaving = roster_.at(2).leaving = true;
  EXPECT_THAT(roster_.Active(), ElementsAre(0, 1));
  EXPECT_THAT(roster_.Staying(), ElementsAre(1));
  EXPECT_THAT(roster_.Helpers(4), ElementsAre(1));
  EXPECT_THAT(roster_.ReadyToEnter(), IsEmpty());
  roster_.at(1).weights_from = 5;
  EXPECT_THAT(roster_.Helpers(4), ElementsAre(0));  // the only one that has W(4)
}

TEST_F(RosterTest, MembersWithoutReadyAreMissingWhenWorkersRunOut) {
  Seat(0);
  Seat(1);
  roster_.at(0).state = MemberState::kReady;
  roster_.at(2).state = MemberState::kGivenUp;
  EXPECT_THAT(roster_.MissingRanks(), IsEmpty());
  EXPECT_THAT(roster_.MissingRanks(MemberState::kWaiting), ElementsAre(2));
  EXPECT_THAT(roster_.MissingRanks(MemberState::kReady), ElementsAre(1, 2));
}

TEST_F(RosterTest, TheFirstDifferenceOfTheGraphIsNamed) {
  EXPECT_EQ(
      Refusal(Hello(Layout(5, {"fc dense 5"}))),
      "the graph differs: variable 0 is fc/weights [4,8] in the server and fc/weights [5,8] in the "
      "worker");
  EXPECT_THAT(
      Refusal(Hello(Layout(4, {"fc dense 4 relu"}))),
      AllOf(HasSubstr("\"fc dense 4\" in the server"), HasSubstr("\"fc dense 4 relu\" in the")));
  wire::Hello hello = Hello(Layout(4, {"fc", "loss"}));
  hello.mutable_variable()->RemoveLast();
  EXPECT_EQ(Refusal(hello), "the graph differs: variable fc/bias is only in the server");
  // The layers are left out if they are too large to be sent.
  hello.clear_layer();
  EXPECT_THAT(Refusal(hello), HasSubstr("fc/bias is only in the server"));
  hello.clear_variable();
  EXPECT_THAT(Refusal(hello), HasSubstr("too large for the worker to report where"));
  hello = Hello();
  hello.set_graph_hash(99);
  hello.clear_layer();
  EXPECT_THAT(Refusal(hello), HasSubstr("too many layers for the worker to report"));
}

TEST_F(RosterTest, TheSettingsMustBeTheSame) {
  wire::Hello hello = Hello();
  hello.set_setting(0, "run.seed: 2");
  EXPECT_THAT(Refusal(hello), AllOf(HasSubstr("the config differs"), HasSubstr("run.seed")));
  hello.clear_setting();  // a program without a config
  EXPECT_EQ(Refusal(hello), "");
}

TEST_F(RosterTest, AllSeeTheSameData) {
  wire::Hello hello = Hello();
  hello.set_train_samples(0);
  EXPECT_EQ(Refusal(hello), "the worker found no training samples");
  Seat(0);
  hello.set_train_samples(99);
  EXPECT_THAT(Refusal(hello),
              HasSubstr("rank 1 (host lab3, pid 77) has 99 training and 10 test samples, but "
                        "rank 0 (host lab3, pid 77) has 100 training and 10 test samples"));
  hello.set_train_samples(100);
  hello.set_validation_samples(5);
  EXPECT_THAT(Refusal(hello), HasSubstr(" has 100 training, 5 validation and 10 test"));
  hello.clear_validation_samples();
  hello.set_data_fingerprint(6);
  hello.set_host("lab4");
  EXPECT_THAT(Refusal(hello),
              AllOf(HasSubstr("rank 1 (host lab4, pid 77) and rank 0 (host lab3, pid 77) see data"),
                    HasSubstr("fingerprints 0000000000000006 and 0000000000000005")));
  hello.set_data_fingerprint(5);
  EXPECT_EQ(Refusal(hello, 2), "");
  hello.set_data_contents(7);
  EXPECT_THAT(Refusal(hello),
              AllOf(HasSubstr("rank 1 (host lab4, pid 77) and rank 0 (host lab3, pid 77)"),
                    HasSubstr("different contents, with the hashes 0000000000000007")));
}

TEST_F(RosterTest, ProgramsSayTheSameBatchAndLength) {
  wire::Hello hello = Hello();
  hello.set_global_batch(64);
  EXPECT_EQ(Refusal(hello, 0), "");
  EXPECT_EQ(Refusal(hello, 1), "");
  hello.set_epochs(3);
  EXPECT_THAT(Refusal(hello, 2), HasSubstr("64 and 3 epochs"));
  hello.clear_epochs();
  hello.set_drop_last(true);
  EXPECT_THAT(Refusal(hello, 2), HasSubstr("says drop_last=true, but rank 0"));
  hello.clear_drop_last();
  hello.set_loss_scaling(false);
  EXPECT_THAT(Refusal(hello, 2), HasSubstr("says loss scale off, but rank 0"));
}

TEST_F(RosterTest, ProgramsComputeAlike) {
  wire::Hello hello = Hello();
  hello.set_arithmetic("CPU, one");
  EXPECT_EQ(Refusal(hello, 0), "") << "a built-in worker";
  hello.clear_setting();
  hello.clear_arithmetic();
  EXPECT_EQ(Refusal(hello, 1), "") << "it says nothing";
  roster_.Vacate(1, now_);
  hello.set_arithmetic("CPU, two");
  EXPECT_EQ(Refusal(hello, 1), "") << "the first that says something";
  hello.set_arithmetic("CPU, three");
  EXPECT_THAT(Refusal(hello, 2),
              AllOf(HasSubstr("rank 2 (host lab3, pid 77) computes with \"CPU, three\", but rank 1 "
                              "(host lab3, pid 77) with \"CPU, two\""),
                    HasSubstr("--devices")));
  roster_.Vacate(1, now_);
  EXPECT_THAT(Refusal(hello, 1), HasSubstr("CPU, two")) << "it replaces the one that was there";
  hello.clear_arithmetic();
  EXPECT_EQ(Refusal(hello, 1), "");
}

TEST_F(RosterTest, AnotherNumberOfThreadsIsRemarked) {
  Seat(0);
  wire::Hello hello = Hello();
  hello.set_threads(4);
  EXPECT_EQ(Refusal(hello), "");
  EXPECT_EQ(roster_.Remark(0), "");
  EXPECT_THAT(roster_.Remark(1), HasSubstr("it uses 4 threads but rank 0 uses 2"));
}

TEST_F(RosterTest, WhoWantsNoRankGetsTheFirstThatIsFree) {
  Seat(1);
  for (const uint32_t expected : {0u, 2u}) {
    const Roster::Seating seating = roster_.Join(60 + expected, Hello(), now_);
    EXPECT_EQ(seating.refusal, "");
    EXPECT_EQ(seating.rank, expected);
    EXPECT_EQ(roster_.RankOf(60 + expected), expected);
  }
  EXPECT_EQ(roster_.Join(70, Hello(), now_).refusal, "all 3 ranks of this job are taken");
}

TEST_F(RosterTest, AMessageMustComeFromItsSeat) {
  Seat(1);
  EXPECT_TRUE(roster_.Matches(1, Address(1, 0)));
  EXPECT_FALSE(roster_.Matches(1, Address(0, 0)));
  wire::Address other_job = Address(1, 0);
  other_job.set_job(8);
  EXPECT_FALSE(roster_.Matches(1, other_job));
  roster_.at(1).state = MemberState::kReady;
  roster_.at(1).weights_from = 3;
  EXPECT_THAT(roster_.Active(), ElementsAre(1));
  EXPECT_FALSE(roster_.HasVersion(1, 2));
  EXPECT_TRUE(roster_.HasVersion(1, 3));
  roster_.BeginAnew(1, now_);
  EXPECT_FALSE(roster_.Matches(1, Address(1, 0))) << "of an earlier incarnation";
  EXPECT_TRUE(roster_.Matches(1, Address(1, 1)));
  EXPECT_THAT(roster_.Unready(), ElementsAre(1));
  EXPECT_THAT(roster_.Active(), IsEmpty());
}

TEST_F(RosterTest, ASeatMovesToTheSameProcesssSecondConnection) {
  Seat(1);
  EXPECT_NE(roster_.Reseat(50, Hello(layout_, 78), now_).refusal, "");  // another process
  wire::Hello hello = Hello();
  hello.set_process(0);  // unknown process
  EXPECT_NE(roster_.Reseat(50, hello, now_).refusal, "");
  hello = Hello();
  hello.set_token("");
  EXPECT_EQ(roster_.Reseat(50, hello, now_).refusal, kWrongToken);
  EXPECT_EQ(roster_.RankOf(41), 1u);
  const Roster::Seating seating = roster_.Reseat(50, Hello(), now_);
  EXPECT_EQ(seating.refusal, "");
  EXPECT_EQ(seating.rank, 1u);
  EXPECT_EQ(roster_.RankOf(50), 1u);
  EXPECT_EQ(roster_.RankOf(41), std::nullopt);
  roster_.at(1).state = MemberState::kReady;  // its memory was fine
  EXPECT_THAT(roster_.Reseat(51, Hello(), now_).refusal,
              HasSubstr("pid 77 is not a worker waiting for shared memory"));
}

TEST_F(RosterTest, WordsOfAStrangerAreMadePrintable) {
  wire::Hello hello = Hello();
  hello.set_host("lab\n\x1b[31m");
  EXPECT_EQ(Refusal(hello), "");
  EXPECT_EQ(roster_.Name(1), "rank 1 (host lab??[31m, pid 77)");
}

// Whoever joins first decides what is shown to the others.
TEST_F(RosterTest, WordsOfAStrangerAreFew) {
  const std::string many(200000, 'x');
  wire::Hello hello = Hello();
  hello.set_host(many);
  hello.set_arithmetic(many);
  EXPECT_EQ(Refusal(hello), "");
  EXPECT_LT(roster_.Name(1).size(), 100u);
  EXPECT_LT(roster_.at(1).arithmetic.size(), 600u);
  EXPECT_LT(Refusal(Hello()).size(), 150u) << "its rank is taken";
  hello.set_data_fingerprint(6);
  EXPECT_LT(Refusal(hello, 2).size(), 500u);
  hello.set_setting(0, many);
  EXPECT_LT(Refusal(hello, 2).size(), 800u);
  hello.set_graph_hash(1);
  hello.set_layer(0, many + "\n");
  EXPECT_LT(Refusal(hello, 2).size(), 500u);
  hello.mutable_variable(0)->set_name(many);
  for (const char c : many) hello.mutable_variable(0)->add_shape(c);
  EXPECT_LT(Refusal(hello, 2).size(), 800u);
}

TEST_F(RosterTest, TheDataOfAWorkerThatIsGoneDoNotBindTheNext) {
  Roster roster(layout_, {kToken, 9, 2, {"run.seed: 1"}});
  wire::Hello wrong = Hello();
  wrong.set_data_fingerprint(6);
  wrong.set_rank(0);
  EXPECT_EQ(roster.Join(1, wrong, {}).refusal, "");
  roster.Vacate(0, {});
  wire::Hello right = Hello();
  right.set_rank(0);
  EXPECT_EQ(roster.Join(2, right, {}).refusal, "");
}

}  // namespace
}  // namespace muster
