// The store, in one process and over its socket, with clients that behave and clients that do not.
#include <array>
#include <cstring>
#include <fcntl.h>
#include <random>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "dtrain/core/base/error.h"
#include "dtrain/parallel/store/store_message.h"
#include "dtrain/parallel/store/unix_store.h"
#include "dtrain/parallel/store/unix_store_server.h"

namespace dtrain {
namespace {

class Stores : public testing::TestWithParam<bool> {
 protected:
  Stores() {
    if (GetParam()) {
      server_ = std::make_unique<UnixStoreServer>();
      store_ = std::make_unique<UnixStore>(server_->address());
      other_ = std::make_unique<UnixStore>(server_->address());
    } else {
      store_ = make_local_store();
    }
  }
  DescriptorStore& store() { return *store_; }
  DescriptorStore& other() { return other_ ? *other_ : *store_; }

 private:
  std::unique_ptr<UnixStoreServer> server_;
  std::unique_ptr<DescriptorStore> store_;
  std::unique_ptr<DescriptorStore> other_;
};
INSTANTIATE_TEST_SUITE_P(Store, Stores, testing::Bool(),
                         [](const auto& info) { return info.param ? "unix_socket" : "local"; });

TEST_P(Stores, SetGetAddRemove) {
  store().set("a", "1");
  store().set("a", std::string("x\0y", 3));
  EXPECT_EQ(other().get("a", Deadline(5)), std::string("x\0y", 3));
  EXPECT_EQ(store().add("n", 5), 5);
  EXPECT_EQ(other().add("n", -7), -2);
  EXPECT_EQ(store().get("n", Deadline(5)), "-2");
  EXPECT_THROW(store().add("a", 1), CommError);
  EXPECT_TRUE(other().wait("a", Deadline(5)));
  store().remove("a");
  store().remove("a");
  EXPECT_FALSE(other().wait("a", Deadline(0.05)));
  const std::string large(5 << 20, 'z');
  store().set("large", large);
  EXPECT_EQ(other().get("large", Deadline(20)), large);
  store().set("", "");
  EXPECT_EQ(other().get("", Deadline(5)), "");
}

TEST_P(Stores, GetWaitsAndNamesItsKeyWhenTheDeadlinePasses) {
  std::thread setter([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    other().set("late", "here");
  });
  EXPECT_EQ(store().get("late", Deadline(30)), "here");
  setter.join();
  const TimePoint start = Clock::now();
  try {
    store().get("address/3", Deadline(0.1));
    ADD_FAILURE() << "nobody has set it";
  } catch (const CommError& e) {
    EXPECT_NE(std::string(e.what()).find("'address/3'"), std::string::npos) << e.what();
  }
  EXPECT_GE(seconds_since(start), 0.1);
  // A late answer is not taken for the answer to the next request.
  other().set("address/3", "old");
  EXPECT_EQ(store().get("late", Deadline(5)), "here");
}

TEST_P(Stores, DescriptorsArePassedAnyNumberOfTimes) {
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe2(pipe.data(), O_CLOEXEC), 0);
  UniqueFd read_end(pipe[0]);
  UniqueFd write_end(pipe[1]);
  std::thread sharer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    other().share("pipe", write_end.get());
    write_end.reset();
  });
  for (const char c : {'a', 'b'}) {
    const UniqueFd copy = store().receive("pipe", Deadline(30));
    EXPECT_NE(::fcntl(copy.get(), F_GETFD) & FD_CLOEXEC, 0);
    ASSERT_EQ(::write(copy.get(), &c, 1), 1);
    char got = 0;
    ASSERT_EQ(::read(read_end.get(), &got, 1), 1);
    EXPECT_EQ(got, c);
  }
  sharer.join();
  EXPECT_THROW(store().receive("nothing", Deadline(0.05)), CommError);
  // Once it is removed nobody holds the write end: the pipe ends.
  store().remove("pipe");
  char none = 0;
  EXPECT_EQ(::read(read_end.get(), &none, 1), 0);
}

TEST_P(Stores, ManyThreadsCountTogether) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) (t % 2 == 0 ? store() : other()).add("count", 1);
      store().get("go", Deadline(60));
    });
  }
  other().set("go", "");
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(store().get("count", Deadline(5)), "400");
}

TEST(UnixStoreServer, TheHostTakesPart) {
  UnixStoreServer server;
  UnixStore client(server.address());
  client.set("failure/2", "disk full");
  EXPECT_EQ(server.store().get("failure/2", Deadline(5)), "disk full");
  std::thread host([&] { server.store().set("go", "now"); });
  EXPECT_EQ(client.get("go", Deadline(30)), "now");
  host.join();
}

TEST(UnixStoreServer, ClientsOfAServerThatEndsGetAnErrorAtOnce) {
  auto server = std::make_unique<UnixStoreServer>();
  const std::string address = server->address();
  UnixStore client(address);
  std::thread end([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    server.reset();
  });
  const TimePoint start = Clock::now();
  EXPECT_THROW(client.get("never", Deadline(100)), CommError);
  EXPECT_LT(seconds_since(start), 20);
  end.join();
  EXPECT_THROW(client.set("a", "b"), CommError);
  EXPECT_THROW(UnixStore{address}, CommError);
}

TEST(UnixStoreServer, AnAddressIsOneOrAnError) {
  for (const char* address : {"", "@", "/tmp/socket", "dtrain"}) {
    EXPECT_THROW(UnixStore{address}, CommError) << address;
  }
  EXPECT_THROW(UnixStore{"@" + std::string(200, 'x')}, CommError);
  EXPECT_NE(UnixStoreServer().address(), UnixStoreServer().address());
}

// A client that writes what it likes.
UniqueFd raw_client(const UnixStoreServer& server) {
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(connect_to(server.address(), socket.get()), 0);
  const timeval patience{20, 0};
  ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  return socket;
}

bool disconnected(const UniqueFd& socket) {
  char byte = 0;
  const ssize_t n = ::recv(socket.get(), &byte, 1, 0);
  return n == 0 || (n < 0 && errno == ECONNRESET);
}

void send_text(const UniqueFd& socket, const std::string& bytes) {
  static_cast<void>(::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL));
}

std::string words(std::initializer_list<std::uint32_t> values) {
  return {reinterpret_cast<const char*>(values.begin()), values.size() * sizeof(std::uint32_t)};
}

// Another user's process is turned away by the server, and turns away from it.
TEST(UnixStoreServer, UsersKeepToThemselves) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const UnixStoreServer server;
  UnixStore good(server.address());
  good.set("secret", "1");
  const pid_t pid = ::fork();
  if (pid == 0) {
    if (::setresuid(12345, 12345, 12345) != 0) ::_exit(2);
    int code = 1;
    try {
      UnixStore(server.address()).get("secret", Deadline(5));
    } catch (const CommError& e) {
      code = std::string_view(e.what()).find("another user") != std::string_view::npos ? 0 : 3;
    }
    ::_exit(code);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_EQ(status, 0);

  // The server's side of it: a client that does not care who serves.
  const pid_t other = ::fork();
  if (other == 0) {
    if (::setresuid(12345, 12345, 12345) != 0) ::_exit(2);
    const UniqueFd client = raw_client(server);
    send_text(client, encode(static_cast<std::uint32_t>(StoreOperation::set), "secret", "2"));
    ::_exit(disconnected(client) ? 0 : 1);
  }
  ASSERT_EQ(::waitpid(other, &status, 0), other);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(good.get("secret", Deadline(5)), "1");
}

TEST(UnixStoreServer, MalformedMessagesEndTheirConnectionOnly) {
  UnixStoreServer server;
  UnixStore good(server.address());
  const std::uint32_t magic = 0x64747231;
  const std::string set = encode(static_cast<std::uint32_t>(StoreOperation::set), "k", "v");
  const std::vector<std::string> bad{
      std::string(64, '\0'),
      "GET / HTTP/1.1\r\n\r\n",
      words({magic, 1, 0xffffffff, 0}),
      words({magic, 1, 0, 0xffffffff}),
      words({magic, 1, most_key_bytes + 1, 0}) + std::string(100, 'k'),
      words({magic, 99, 0, 0}),
      words({magic, 0, 1, 0}) + "k",
      encode(static_cast<std::uint32_t>(StoreOperation::share), "no descriptor", ""),
      set + "more",
  };
  for (std::size_t i = 0; i < bad.size(); ++i) {
    const UniqueFd client = raw_client(server);
    send_text(client, bad[i]);
    EXPECT_TRUE(disconnected(client)) << "message " << i;
    good.set("alive", std::to_string(i));
  }
  // An amount that is none is answered, not obeyed.
  const UniqueFd client = raw_client(server);
  send_text(client, encode(static_cast<std::uint32_t>(StoreOperation::add), "n", "12x"));
  std::array<std::uint32_t, 4> header{};
  ASSERT_EQ(::recv(client.get(), header.data(), sizeof header, MSG_WAITALL), 16);
  EXPECT_EQ(header[1], static_cast<std::uint32_t>(StoreStatus::failed));
  EXPECT_FALSE(good.wait("n", Deadline(0.05)));
}

TEST(UnixStoreServer, SlowSilentAndGreedyClientsBlockNobody) {
  UnixStoreServer server;
  std::vector<UniqueFd> clients;
  for (int i = 0; i < 20; ++i) clients.push_back(raw_client(server));
  const std::string get = encode(static_cast<std::uint32_t>(StoreOperation::get), "large", "");
  UnixStore good(server.address());
  good.set("large", std::string(1 << 20, 'x'));
  for (std::size_t i = 0; i < clients.size(); ++i) {
    if (i % 3 == 0) send_text(clients[i], get.substr(0, 7));  // half a header
    if (i % 3 == 1) {                                         // asks and never reads
      for (int k = 0; k < 100; ++k) {
        static_cast<void>(
            ::send(clients[i].get(), get.data(), get.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
      }
    }
  }
  for (int i = 0; i < 100; ++i) good.set("n", std::to_string(i));
  EXPECT_EQ(good.get("n", Deadline(20)), "99");
  clients.resize(5);  // some die in the middle
  EXPECT_EQ(good.get("n", Deadline(20)), "99");
}

TEST(UnixStoreServer, DescriptorsNobodyAskedForAreClosed) {
  UnixStoreServer server;
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe2(pipe.data(), O_CLOEXEC), 0);
  const UniqueFd read_end(pipe[0]);
  UniqueFd write_end(pipe[1]);
  const UniqueFd client = raw_client(server);
  // With the first byte of a message that has no use for it, and again within the message.
  const std::string set = encode(static_cast<std::uint32_t>(StoreOperation::set), "key", "v");
  ASSERT_EQ(send_some(client.get(), std::span(set).first(5), write_end.get()), 5);
  ASSERT_EQ(send_some(client.get(), std::span(set).subspan(5), write_end.get()),
            static_cast<std::ptrdiff_t>(set.size() - 5));
  std::array<char, 16> reply{};
  ASSERT_EQ(::recv(client.get(), reply.data(), reply.size(), MSG_WAITALL), 16);
  write_end.reset();
  char none = 0;
  EXPECT_EQ(::read(read_end.get(), &none, 1), 0);
}

TEST(UnixStoreServer, SurvivesRandomBytes) {
  UnixStoreServer server;
  std::mt19937 random(3);
  for (int round = 0; round < 300; ++round) {
    std::string bytes =
        encode(1 + random() % 8, std::string(random() % 40, 'k'), std::string(random() % 300, 'v'));
    for (unsigned i = 0; i < random() % 4; ++i) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    bytes.resize(random() % (bytes.size() + 1));
    const UniqueFd client = raw_client(server);
    send_text(client, bytes);
  }
  UnixStore good(server.address());
  good.set("alive", "yes");
  EXPECT_EQ(good.get("alive", Deadline(20)), "yes");
}

}  // namespace
}  // namespace dtrain
