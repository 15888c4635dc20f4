// What is wrong with the text of a config is said with its place, what was expected, and what else
// may have been meant.
#include <sstream>

#include "common/config/nearest_name.h"
#include "tests/config/config_fixture.h"

namespace muster::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST_F(ConfigTest, EveryErrorSaysWhereWhatAndWhatElse) {
  const std::string where = dir_ + "/c.txtpb:2: ";
  EXPECT_THAT(
      ErrorOf(Config("cluster { worker: 3 }")),
      AllOf(StartsWith(where), HasSubstr("cluster.worker: unknown key"), HasSubstr("\"workers\"")));
  EXPECT_THAT(ErrorOf(Config("clutser { workers: 3 }")),
              AllOf(StartsWith(where), HasSubstr("\"cluster\"")));
  EXPECT_THAT(ErrorOf(Config("cluster { workers: \"two\" }")),
              AllOf(StartsWith(where), HasSubstr("workers: expected a whole number, at least 1 and "
                                                 "at most 1024 (processes), got \"two\"")));
  EXPECT_THAT(ErrorOf(Config("cluster { workers: -1 }")),
              AllOf(StartsWith(where), HasSubstr("workers")));
  EXPECT_THAT(ErrorOf(Config("cluster { workers: 0 }")),
              AllOf(StartsWith(where), HasSubstr("at least 1"), HasSubstr("got 0")));
  EXPECT_THAT(ErrorOf(Config("cluster { transport: TPC }")),
              AllOf(StartsWith(where), HasSubstr("transport"), HasSubstr("\"TCP\"")));
  EXPECT_THAT(ErrorOf(Config("optimizer { type: MOMENTUM momentum: nan }")),
              AllOf(StartsWith(where), HasSubstr("optimizer.momentum"), HasSubstr("nan")));
  EXPECT_THAT(ErrorOf(Config("deadlines { start_s: inf }")),
              AllOf(StartsWith(where), HasSubstr("deadlines.start_s"), HasSubstr("inf")));
  EXPECT_THAT(ErrorOf(Config("optimizer { type: MOMENTUM momentum: 1.0 }")),
              AllOf(StartsWith(where), HasSubstr("less than 1")));
  EXPECT_THAT(ErrorOf(Config("optimizer { momentum: 0.5 }")),
              AllOf(StartsWith(where), HasSubstr("contradicts")));
  EXPECT_THAT(
      ErrorOf(Config("cluster { workers: 4 }", "run { epochs: 1 global_batch: 8 slices: 3 }")),
      AllOf(HasSubstr("run.slices: 3 slices cannot keep 4 workers busy"), HasSubstr("--workers 3"),
            HasSubstr("--set run.slices=4")));
  EXPECT_THAT(ErrorOf(Config("", "run { epochs: 1 steps: 5 global_batch: 8 }")),
              AllOf(HasSubstr(":1: "), HasSubstr("steps"), HasSubstr("epochs")));
  EXPECT_THAT(ErrorOf(Config("", "run { epochs: 1 global_batch: 8 batch_per_worker: 4 }")),
              HasSubstr("batch_per_worker"));
  EXPECT_THAT(ErrorOf(Config("", "run { epochs: 1 }")), HasSubstr("global_batch"));
  EXPECT_THAT(ErrorOf(Config("", "run { global_batch: 8 }")), HasSubstr("epochs"));
  EXPECT_THAT(ErrorOf(Config("evaluation { batch: 0 }")),
              AllOf(StartsWith(where), HasSubstr("evaluation.batch")));
  EXPECT_THAT(ErrorOf(Config("cluster {")), HasSubstr(dir_ + "/c.txtpb:"));
  EXPECT_THAT(ErrorOf(dir_ + "/none.txtpb"),
              AllOf(HasSubstr("none.txtpb"), HasSubstr("No such file")));
  EXPECT_THAT(ErrorOf(dir_), HasSubstr(dir_));
}

// Names of models and classes are text, which goes into files of UTF-8.
TEST_F(ConfigTest, NamesThatAreNotUtf8) {
  Write("model.txtpb", std::string("name: \"caf\xe9\"\n") + kModel);
  EXPECT_THAT(ErrorOf(Config("")), AllOf(StartsWith(dir_ + "/model.txtpb:1: model.name: "),
                                         HasSubstr("UTF-8"), HasSubstr("0xe9"), HasSubstr("caf")));
  Write("model.txtpb", kModel);
  EXPECT_THAT(ErrorOf(Config(""), {"data.class_names=\"caf\\351\""}),
              AllOf(HasSubstr("data.class_names[0]: "), HasSubstr("0xe9")));
  EXPECT_THAT(ErrorOf(Config(""), {"data.dir=\"a\\000b\""}),
              AllOf(HasSubstr("data.dir: "), HasSubstr("zero byte")));
}

TEST_F(ConfigTest, TextThatEndsTooEarly) {
  for (const char* run : {"run { epochs: 1 global_batch: 8", "run { epochs: 1 global_batch:"}) {
    Write("cut.txtpb", run);
    EXPECT_THAT(ErrorOf(dir_ + "/cut.txtpb"),
                AllOf(HasSubstr("cut.txtpb:1: "), HasSubstr("global_batch: "),
                      HasSubstr("the text ends too early")));
  }
}

TEST_F(ConfigTest, ANumberWhereAMessageBelongs) {
  EXPECT_THAT(ErrorOf(Config(""), {"run=3"}),
              AllOf(HasSubstr("--set run=3: run: expected { KEY: VALUE ... }"),
                    HasSubstr("epochs, "), HasSubstr("got 3")));
  EXPECT_THAT(ErrorOf(Config("cluster: 3")),
              AllOf(HasSubstr("c.txtpb:2: cluster: expected {"), HasSubstr("got 3")));
}

// Of several keys on a line.
TEST_F(ConfigTest, TheKeyIsTheOneWhoseValueIsWrong) {
  for (const char* run :
       {"run { seed: 1 steps: two global_batch: 8 }", "run { seed: 1\tsteps: 2.5 global_batch: 8 }",
        "run { seed: 1 steps: \"2\" global_batch: 8 }"}) {
    EXPECT_THAT(ErrorOf(Config("", run)),
                AllOf(HasSubstr(":1: run.steps: "), HasSubstr("whole number, at least 1 and ")));
  }
  EXPECT_THAT(ErrorOf(Config("", "run { seed: -1 steps: 2 global_batch: 8 }")),
              HasSubstr(":1: run.seed: "));
  EXPECT_THAT(ErrorOf(Config("cluster { transport: TPC workers: 2 }")), HasSubstr("transport"));
}

// Other messages have fields of the same name, with other values and other ranges.
TEST_F(ConfigTest, WhatIsExpectedIsThatOfTheField) {
  EXPECT_THAT(ErrorOf(Config("optimizer {\n  type: FOO\n}")),
              AllOf(HasSubstr("c.txtpb:3: optimizer.type: unknown value FOO"), HasSubstr("ADAMW"),
                    Not(HasSubstr("COSINE")), Not(HasSubstr("HE"))));
  Write("model.txtpb", "layer { name: \"fc\" dense { weights { initializer { type: FOO } } } }");
  EXPECT_THAT(ErrorOf(Config("")), AllOf(HasSubstr("TRUNCATED_NORMAL"), Not(HasSubstr("ADAM"))));
  EXPECT_THAT(
      ErrorOf(Config("optimizer { type: MOMENTUM momentum: x }")),
      HasSubstr(":2: optimizer.momentum: expected a number, at least 0 and less than 1 (factor)"));
}

// A number that is written as something else than 0 is not taken for it.
TEST_F(ConfigTest, NumbersThatWouldBecomeZeroAreRefused) {
  const std::string path = Config("");
  EXPECT_THAT(ErrorOf(path, {"learning_rate.base=1e-500"}),
              StartsWith("--set learning_rate.base=1e-500: learning_rate.base: 1e-500 is too small "
                         "for a double"));
  EXPECT_THAT(ErrorOf(path, {"optimizer={ weight_decay: 1e-60 }"}),
              HasSubstr("optimizer.weight_decay: 1e-60 is too small for a float"));
  EXPECT_THAT(ErrorOf(Config("optimizer {\n  weight_decay: -1e-60\n}")),
              HasSubstr("c.txtpb:3: optimizer.weight_decay: 1e-60 is too small for a float"));
  // Of a list of messages too.
  Write("model.txtpb",
        "layer: [{ name: \"fc\" dense { units: 10 } }, { name: \"b\" batch_norm { momentum: "
        "1e-99 } }]\nlayer { name: \"loss\" softmax_cross_entropy {} }\n");
  EXPECT_THAT(ErrorOf(Config("")),
              HasSubstr("model.txtpb:1: model.layer.batch_norm.momentum: 1e-99 is too small"));
  Write("model.txtpb", kModel);
  for (const char* zero : {"0", "0.0", "0e-500", "-0.0", "1e-40"}) {
    EXPECT_EQ(ErrorOf(path, {std::string("optimizer={ weight_decay: ") + zero + " }"}), "no error");
  }
  EXPECT_EQ(ErrorOf(path, {"learning_rate.base=1e-300"}), "no error");
}

TEST_F(ConfigTest, AnEmptyFileIsCalledThat) {
  EXPECT_THAT(ErrorOf(Write("empty", "")), HasSubstr("empty: the file is empty; expected"));
  EXPECT_THAT(ErrorOf("/dev/null"), HasSubstr("/dev/null: the file is empty"));
  Write("model.txtpb", "");
  EXPECT_THAT(ErrorOf(Config("")), HasSubstr("model.txtpb: the file is empty"));
}

TEST_F(ConfigTest, AFileWithoutAnEndIsNoConfig) {
  EXPECT_EQ(ErrorOf("/dev/zero"), "/dev/zero: larger than 64 MiB: is it a text?");
}

// Whatever is in it: the error is short, and takes time and memory in proportion to the file.
TEST_F(ConfigTest, ALineOfMegabytes) {
  const std::string many(10 << 20, 'x');
  for (const std::string& text :
       {many, "run { steps: " + many + " }", "cluster { transport: " + many + " }",
        "run { steps: 1 global_batch: 8 } # " + many + "\nrun { steps: two }",
        std::string(10 << 20, '{')}) {
    const std::string error = ErrorOf(Write("long", text));
    EXPECT_THAT(error, HasSubstr("long:"));
    EXPECT_LT(error.size(), 2000u);
  }
  std::string blocks = "run { steps: 1 global_batch: 8 } cluster { transport: 5x";
  for (int i = 0; i < 300'000; ++i) blocks += " } server { threads: 1";
  EXPECT_THAT(ErrorOf(Write("long", blocks)), HasSubstr("long:1: "));
}

TEST_F(ConfigTest, ANetworkIsNotAConfig) {
  (void)Config("");
  EXPECT_THAT(ErrorOf(dir_ + "/model.txtpb"),
              AllOf(HasSubstr("is a network"), HasSubstr("model_file: \"")));
}

TEST_F(ConfigTest, OtherEncodings) {
  const std::string utf16("\xFF\xFEr\0u\0n\0", 8);
  EXPECT_THAT(ErrorOf(Write("other", utf16)), HasSubstr("is not a text file"));
  // UTF-8's mark says nothing and is no mistake.
  std::ifstream good(Config(""));
  const std::string text((std::istreambuf_iterator<char>(good)), {});
  EXPECT_EQ(LoadConfig(Write("marked.txtpb", "\xEF\xBB\xBF" + text), {}).run().epochs(), 2);
}

TEST_F(ConfigTest, ErrorsOfTheModelNameItsFileLineAndLayer) {
  Write("model.txtpb",
        "layer { name: \"fc\"\n dense { units: 10 } }\nlayer { name: \"loss\" softmax {} }\n");
  EXPECT_THAT(ErrorOf(Config("")),
              AllOf(HasSubstr("model.txtpb:3"), HasSubstr("softmax_cross_entropy")));
  Write("model.txtpb",
        "layer { name: \"c\" conv2d { filters: 4 kernel: 99 } }\n" + std::string(kModel));
  EXPECT_THAT(ErrorOf(Config("")), AllOf(HasSubstr("model.txtpb:1"), HasSubstr("\"c\" (conv2d)")));
  Write("model.txtpb",
        "layer { name: \"fc\" dense { units: 9 } } layer { name: \"loss\" softmax_cross_entropy {} "
        "}");
  EXPECT_THAT(ErrorOf(Config("")), AllOf(HasSubstr("10 logits"), HasSubstr("9")));
  std::filesystem::remove(dir_ + "/model.txtpb");
  EXPECT_THAT(ErrorOf(Config("")), AllOf(HasSubstr("c.txtpb:4"), HasSubstr("model.txtpb")));
}

TEST_F(ConfigTest, SettingErrorsNameTheSetting) {
  const std::string path = Config("");
  EXPECT_THAT(ErrorOf(path, {"run.epocs=3"}),
              AllOf(StartsWith("--set run.epocs=3"), HasSubstr("\"epochs\"")));
  EXPECT_THAT(ErrorOf(path, {"rum.epochs=3"}), HasSubstr("\"run\""));
  EXPECT_THAT(
      ErrorOf(path, {"run.epochs=x"}),
      HasSubstr("--set run.epochs=x: run.epochs: expected a whole number, at least 1 and at "
                "most 1000000 (passes over the training set), got x"));
  EXPECT_THAT(ErrorOf(path, {"cluster.workers=-1"}),
              HasSubstr("cluster.workers: expected a whole number, at least 1 and at most 1024 "
                        "(processes), got -1"));
  for (const char* many : {"99999999999999", "1025"}) {
    EXPECT_THAT(ErrorOf(path, {std::string("cluster.workers=") + many}),
                AllOf(HasSubstr("at most 1024"), HasSubstr(std::string("got ") + many)));
  }
  EXPECT_THAT(ErrorOf(path, {"run.seed=18446744073709551616"}),
              HasSubstr("at least 0 and at most 18446744073709551615, got 18446744073709551616"));
  EXPECT_THAT(
      ErrorOf(path, {"model.layer[fc].dense.units="}),
      HasSubstr("model.layer[0].dense.units: expected a whole number, at least 1 and at most "
                "16777216 (outputs), got nothing"));
  EXPECT_THAT(ErrorOf(path, {"learning_rate.base=z"}),
              HasSubstr("learning_rate.base: expected a number, at least 0 and at most 1000000 "
                        "(learning rate), got z"));
  EXPECT_THAT(ErrorOf(path, {"optimizer.type=FOO"}),
              HasSubstr("optimizer.type: unknown value FOO"));
  EXPECT_THAT(ErrorOf(path, {"run.epochs=0"}),
              AllOf(StartsWith("--set run.epochs=0"), HasSubstr("at least 1")));
  EXPECT_THAT(ErrorOf(path, {"run.epochs=3 seed: 4"}), HasSubstr("one value"));
  EXPECT_THAT(ErrorOf(path, {"learning_rate.base=nan"}), HasSubstr("nan"));
  EXPECT_THAT(ErrorOf(path, {"run.seed.x=3"}), HasSubstr("no parts"));
  EXPECT_THAT(ErrorOf(path, {"model.layer.name=3"}), HasSubstr("list"));
  EXPECT_THAT(ErrorOf(path, {"model.layer[nope].name=3"}), HasSubstr("nope"));
  EXPECT_THAT(ErrorOf(path, {"model.layer[99999999999].name=3"}), HasSubstr("99999999999"));
  EXPECT_THROW(ParseSetting("run.epochs"), Error);
  EXPECT_THROW(ParseSetting("=3"), Error);
}

TEST_F(ConfigTest, AMadeUpSetIsNotMoreThanCanBeCounted) {
  EXPECT_THAT(
      ErrorOf(Config(""), {"data={ format: SYNTHETIC synthetic { test_samples: 1000000000 } }"}),
      HasSubstr("set evaluation.batch to 954 or more"));
  EXPECT_THAT(
      ErrorOf(Config(""), {"data={ format: SYNTHETIC synthetic { train_samples: 1000000000 } }",
                           "run.steps=1000000000000", "run.global_batch=16777216"}),
      HasSubstr("1,000,000,000,000 steps"));
}

std::vector<std::string> Lines(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// The words are those of PyTorch and Keras.
TEST_F(ConfigTest, EveryMistakeOfAFirstConfigIsSaidAtOnce) {
  const std::string path = Write("first.txtpb", R"(run { epochs: 5 batch_size: 64 }
data { format: IMAGE_FOLDER dir: "images" }
optimizer { type: Adam lr: 0.001 }
learning_rate: 0.001
gpus: 2
model {
  layer { conv2d { out_channels: 32 kernel_size: 3 padding: "same" } }
  layer { dense { units: 10 } }
}
)");
  const std::vector<std::string> lines = Lines(ErrorOf(path));
  const auto at = [&](int line, const char* key) {
    return HasSubstr(fmt::format("first.txtpb:{}: {}: ", line, key));
  };
  EXPECT_THAT(lines,
              ::testing::UnorderedElementsAre(
                  "12 mistakes:", AllOf(at(1, "run.batch_size"), HasSubstr("global_batch")),
                  AllOf(at(2, "data.format"), HasSubstr("IMAGE_FOLDER")),
                  AllOf(at(3, "optimizer.type"), HasSubstr("\"ADAM\"")),
                  AllOf(at(3, "optimizer.lr"), HasSubstr("learning_rate { base: ")),
                  AllOf(at(4, "learning_rate"), HasSubstr("write learning_rate { base: 0.001 }")),
                  AllOf(at(5, "gpus"), HasSubstr("devices")),
                  AllOf(at(7, "model.layer.conv2d.out_channels"), HasSubstr("filters")),
                  AllOf(at(7, "model.layer.conv2d.kernel_size"), HasSubstr("kernel: 3")),
                  AllOf(at(7, "model.layer.conv2d.padding"), HasSubstr("\"SAME\"")),
                  at(7, "model.layer[0].name"), at(8, "model.layer[1].name"),
                  AllOf(HasSubstr("first.txtpb:8: "), HasSubstr("softmax_cross_entropy"))));
}

TEST_F(ConfigTest, MistakesOfTheFileOfItsModelAndOfSettingsAreSaidAtOnce) {
  Write("model.txtpb",
        "layer { name: fc dense { unit: 10 } }\n"
        "layer { name: \"loss\" softmax_cross_entropy {} }\n");
  const std::vector<std::string> lines =
      Lines(ErrorOf(Config("epochs: 3"), {"run.seeds=1", "cluster.workers=0"}));
  EXPECT_THAT(
      lines,
      ::testing::UnorderedElementsAre(
          "5 mistakes:", AllOf(HasSubstr("c.txtpb:2: epochs: "), HasSubstr("run { epochs: ")),
          AllOf(HasSubstr("model.txtpb:1: layer.name: "), HasSubstr("quotes")),
          AllOf(HasSubstr("model.txtpb:1: layer.dense.unit: "), HasSubstr("\"units\"")),
          HasSubstr("--set run.seeds=1: "), HasSubstr("cluster.workers")));
}

// A value that cannot be read must not make other settings look wrong.
TEST_F(ConfigTest, NoMistakeIsSaidThatFollowsFromAnother) {
  EXPECT_THAT(Lines(ErrorOf(Config("optimizer { type: MOMENTUMM momentum: 0.9 nesterov: true }"))),
              ::testing::SizeIs(3));
  EXPECT_THAT(
      Lines(ErrorOf(Config("data { format: MNITS preprocess { crop_height: 30 crop_width: "
                           "99 } } #"))),
      ::testing::ElementsAre("2 mistakes:", HasSubstr("data.format"), HasSubstr("given twice")));
  EXPECT_THAT(Lines(ErrorOf(Config("cluster { workers: two min_workers: 5 }"))),
              ::testing::SizeIs(1));
}

// Each takes another reading of the text.
TEST_F(ConfigTest, OnlySoManyMistakesAreSaidAtOnce) {
  std::string many;
  for (int i = 0; i < 1000; ++i) many += fmt::format("foo{}: 1\n", i);
  EXPECT_THAT(Lines(ErrorOf(Write("many.txtpb", many))), ::testing::SizeIs(52));
  // Without brackets that close, nothing can be left out.
  EXPECT_THAT(Lines(ErrorOf(Write("deep.txtpb", "foo " + std::string(500'000, '{')))),
              ::testing::SizeIs(1));
}

TEST(NearestName, FindsTypingErrorsOnly) {
  EXPECT_EQ(NearestName("epocs", {"steps", "epochs"}), "epochs");
  EXPECT_EQ(NearestName("TPC", {"IPC", "TCP"}), "TCP");
  EXPECT_EQ(NearestName("zzzzzz", {"steps", "epochs"}), "");
}

}  // namespace
}  // namespace muster::testing
