#include "tests/gp_test.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/data/download/get.h"
#include "tests/common/data/folder.h"
#include "tests/fault/failing.h"

enum { BODY = 200000, SCRIPT_MAX = 16, TIMEOUT_S = 600 };

/* Server behaviour for a request. */
typedef enum server_act {
    RIGHT,      /* send the requested file or range */
    WHOLE,      /* send the whole file, ignoring the range */
    CUT,        /* close the connection halfway */
    SAYS_MORE,  /* announce a Content-Length larger than the file */
    SAYS_LESS,  /* announce a smaller Content-Length, and send only that much */
    SENDS_MORE, /* send a longer file */
    WRONG,      /* send wrong bytes */
    NOT_FOUND,
    UNAVAILABLE, /* 503 */
    STALL,       /* send some bytes, then nothing until the client disconnects */
    TO_FILE,     /* redirect to file:///etc/passwd */
    IN_CIRCLES,  /* redirect to the same URL */
} server_act;

typedef struct test_server {
    int listener;
    int stop[2]; /* closing stop[1] ends the thread */
    pthread_t thread;
    char url[64];
    const server_act *script; /* an entry per request; the last one is repeated */
    int script_count;
    _Atomic int requests;
    _Atomic long ranges_from; /* range start in the last request; 0: none */
} test_server;

static char body[BODY + 100];
/* Checksums of the first BODY bytes, computed with md5sum and sha256sum. */
static const char body_md5[] = "7ba94ecc2d9274c3d2eb7b626ed56d4b";
static const char body_sha256[] = "e4e4677b93a1fe0433ceb55c8c561ae440da1177640cde639d2f5de6b801f7ad";

static void body_fill(void)
{
    for (int i = 0; i < BODY + 100; i++)
        body[i] = (char)(i * 7919 >> 5);
}

static void send_all(int fd, const char *data, size_t bytes)
{
    while (bytes > 0) {
        ssize_t n = send(fd, data, bytes, MSG_NOSIGNAL);

        if (n <= 0)
            return;
        data += n;
        bytes -= (size_t)n;
    }
}

static void send_head(int fd, const char *status, long length, const char *more)
{
    char head[256];

    snprintf(head, sizeof(head), "HTTP/1.1 %s\r\nContent-Length: %ld\r\nConnection: close\r\n%s\r\n", status,
             length, more);
    send_all(fd, head, strlen(head));
}

static void send_file(int fd, server_act act, long from)
{
    char range[80] = "", copy[32];
    long length = BODY - from, sent = length;

    if (act == SAYS_MORE)
        length += 100;
    if (act == SAYS_LESS)
        length = sent = length - 10;
    if (act == SENDS_MORE)
        length = sent = length + 10;
    if (act == CUT || act == STALL)
        sent /= 2;
    if (from > 0)
        snprintf(range, sizeof(range), "Content-Range: bytes %ld-%d/%d\r\n", from, BODY - 1, BODY);
    send_head(fd, from > 0 ? "206 Partial Content" : "200 OK", length, range);
    if (act == WRONG) {
        memset(copy, '!', sizeof(copy));
        send_all(fd, copy, sizeof(copy));
        from += (long)sizeof(copy);
        sent -= (long)sizeof(copy);
    }
    send_all(fd, body + from, (size_t)sent);
}

static void request_answer(test_server *server, int fd, int turn)
{
    server_act act = server->script[turn < server->script_count ? turn : server->script_count - 1];
    char request[4096], *range, ignored[64];
    size_t got = 0;
    long from = 0;

    while (got < sizeof(request) - 1) {
        ssize_t n = recv(fd, request + got, sizeof(request) - 1 - got, 0);

        if (n <= 0)
            return;
        got += (size_t)n;
        request[got] = '\0';
        if (strstr(request, "\r\n\r\n") != NULL)
            break;
    }
    range = strstr(request, "Range: bytes=");
    if (range != NULL)
        from = atol(range + strlen("Range: bytes="));
    atomic_store(&server->ranges_from, from);
    if (act == NOT_FOUND)
        send_head(fd, "404 Not Found", 0, "");
    else if (act == UNAVAILABLE)
        send_head(fd, "503 Service Unavailable", 0, "");
    else if (act == TO_FILE)
        send_head(fd, "302 Found", 0, "Location: file:///etc/passwd\r\n");
    else if (act == IN_CIRCLES)
        send_head(fd, "302 Found", 0, "Location: /data.bin\r\n");
    else
        send_file(fd, act, act == WHOLE ? 0 : from);
    if (act == STALL)
        while (recv(fd, ignored, sizeof(ignored), 0) > 0)
            continue;
}

static void *server_main(void *argument)
{
    test_server *server = argument;
    struct pollfd polled[2] = { { .fd = server->listener, .events = POLLIN },
                                { .fd = server->stop[0], .events = POLLIN } };

    while (poll(polled, 2, -1) > 0 && polled[1].revents == 0) {
        int fd = accept(server->listener, NULL, NULL);

        request_answer(server, fd, atomic_fetch_add(&server->requests, 1));
        close(fd);
    }
    return NULL;
}

static void server_start(test_server *server, const server_act *script, int script_count)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t bytes = sizeof(address);

    memset(server, 0, sizeof(*server));
    server->script = script;
    server->script_count = script_count;
    server->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(server->listener, (struct sockaddr *)&address, bytes) != 0 || listen(server->listener, 8) != 0 ||
        getsockname(server->listener, (struct sockaddr *)&address, &bytes) != 0 || pipe(server->stop) != 0 ||
        pthread_create(&server->thread, NULL, server_main, server) != 0)
        abort();
    snprintf(server->url, sizeof(server->url), "http://127.0.0.1:%d", ntohs(address.sin_port));
}

static void server_stop(test_server *server)
{
    close(server->stop[1]);
    pthread_join(server->thread, NULL);
    close(server->stop[0]);
    close(server->listener);
}

/* Result of one download into a new folder. */
typedef struct get_trial {
    gp_status status;
    gp_error err;
    int requests;
    long ranges_from;
    bool whole;    /* data.bin exists and is correct */
    bool leftover; /* any other file exists */
} get_trial;

static void site_make(void)
{
    folder_make();
    setenv("no_proxy", "127.0.0.1", 1);
    body_fill();
}

static bool file_is_body(const char *path)
{
    static char got[BODY + 1];
    FILE *file = fopen(path, "r");
    bool same;

    if (file == NULL)
        return false;
    same = fread(got, 1, sizeof(got), file) == BODY && memcmp(got, body, BODY) == 0;
    fclose(file);
    return same;
}

/* Published file properties. */
static gp_get_file published = { "data.bin", BODY, body_md5 };

static void trial_run(get_trial *trial, const server_act *script, int script_count, gp_get_options options)
{
    const gp_get_file file = published;
    const gp_get_set set = { "test", "", NULL, &file, 1, "GRADPOOL_DATA_URL" };
    test_server server;

    server_start(&server, script, script_count);
    if (options.url == NULL)
        options.url = server.url;
    options.directory = in_folder("a/b");
    options.wait_ms = 1;
    options.connect_s = TIMEOUT_S;
    /* no timeouts by default, because requests are counted */
    options.stall_s = options.stall_s == 0 ? TIMEOUT_S : options.stall_s;
    trial->err.message[0] = '\0';
    trial->status = gp_get_fetch(&set, &options, &trial->err);
    trial->requests = atomic_load(&server.requests);
    trial->ranges_from = atomic_load(&server.ranges_from);
    trial->whole = file_is_body(in_folder("a/b/data.bin"));
    trial->leftover = access(in_folder("a/b/data.bin.part"), F_OK) == 0 ||
                      (!trial->whole && access(in_folder("a/b/data.bin"), F_OK) == 0);
    server_stop(&server);
}

/* Run a trial in a new folder, and remove the folder. */
static get_trial try_alone(const server_act *script, int script_count)
{
    get_trial result;
    gp_get_options options = { 0 };

    /* A busy machine may also be silent for a second, so allow more attempts. */
    for (int i = 0; i < script_count; i++)
        if (script[i] == STALL)
            options = (gp_get_options){ .stall_s = 1, .tries = 10 };
    site_make();
    trial_run(&result, script, script_count, options);
    CHECK(!result.leftover);
    CHECK(result.whole == (result.status == GP_OK));
    return result;
}

#define TRY(...)                                                                                             \
    try_alone((const server_act[]){ __VA_ARGS__ },                                                           \
              (int)(sizeof((const server_act[]){ __VA_ARGS__ }) / sizeof(server_act)))

TEST(a_valid_file_takes_one_request)
{
    get_trial result = TRY(RIGHT);

    CHECK_STATUS(GP_OK, result.status);
    CHECK_INT(1, result.requests);
}

TEST(a_broken_transfer_is_resumed)
{
    get_trial result = TRY(CUT, CUT, RIGHT);

    CHECK_STATUS(GP_OK, result.status);
    CHECK_INT(3, result.requests);
    CHECK_INT(BODY * 3 / 4, result.ranges_from);
}

TEST(without_range_support_the_download_restarts)
{
    get_trial result = TRY(CUT, WHOLE, WHOLE);

    CHECK_STATUS(GP_OK, result.status);
    CHECK_INT(3, result.requests);
}

TEST(the_checksum_overrides_the_announced_length)
{
    CHECK_STATUS(GP_OK, TRY(SAYS_MORE).status);
    CHECK_STATUS(GP_OK, TRY(SAYS_LESS, RIGHT).status);
}

TEST(a_transfer_fails_after_four_attempts)
{
    get_trial result = TRY(CUT);

    CHECK_STATUS(GP_EIO, result.status);
    CHECK_INT(4, result.requests);
    CHECK_CONTAINS(result.err.message, "/data.bin is truncated: 187500 of 200000 bytes");
    CHECK_CONTAINS(result.err.message, "GRADPOOL_DATA_URL");
}

TEST(an_oversized_file_is_rejected)
{
    get_trial result = TRY(SENDS_MORE);

    CHECK_STATUS(GP_ECORRUPT, result.status);
    CHECK_INT(1, result.requests);
    CHECK_CONTAINS(result.err.message, "has more than the published 200000 bytes");
}

TEST(wrong_bytes_are_rejected_with_both_checksums)
{
    get_trial result = TRY(WRONG);

    CHECK_STATUS(GP_ECORRUPT, result.status);
    CHECK_INT(1, result.requests);
    CHECK_CONTAINS(result.err.message, body_md5);
    CHECK_CONTAINS(result.err.message, ": MD5 ");
}

TEST(a_mismatched_resume_restarts_the_download)
{
    get_trial result = TRY(CUT, WRONG, RIGHT);

    CHECK_STATUS(GP_OK, result.status);
    CHECK_INT(3, result.requests);
    CHECK_INT(0, result.ranges_from);
}

TEST(http_404_fails_at_once_and_503_is_retried)
{
    get_trial result = TRY(NOT_FOUND);

    CHECK_STATUS(GP_EIO, result.status);
    CHECK_INT(1, result.requests);
    CHECK_CONTAINS(result.err.message, "404");
    CHECK_CONTAINS(result.err.message, "cannot download http://127.0.0.1:");
    result = TRY(UNAVAILABLE, UNAVAILABLE, RIGHT);
    CHECK_STATUS(GP_OK, result.status);
    CHECK_INT(3, result.requests);
}

TEST(a_stalled_transfer_is_aborted_and_resumed)
{
    get_trial result = TRY(STALL, RIGHT);

    CHECK_STATUS(GP_OK, result.status);
    /* more requests if the machine itself stalls */
    CHECK(result.requests >= 2 && result.ranges_from >= BODY / 2);
}

TEST(redirects_are_limited_and_never_reach_local_files)
{
    get_trial result = TRY(TO_FILE);

    CHECK_STATUS(GP_EIO, result.status);
    CHECK_INT(1, result.requests);
    CHECK_CONTAINS(result.err.message, "rotocol");
    result = TRY(IN_CIRCLES);
    CHECK_STATUS(GP_EIO, result.status);
    CHECK_INT(6, result.requests);
    site_make();
    trial_run(&result, (const server_act[]){ RIGHT }, 1, (gp_get_options){ .url = "file:///etc" });
    CHECK_STATUS(GP_EIO, result.status);
    CHECK(!result.leftover);
}

TEST(a_refused_connection_fails_with_the_url)
{
    get_trial result;

    site_make();
    trial_run(&result, (const server_act[]){ RIGHT }, 1, (gp_get_options){ .url = "http://127.0.0.1:1/" });
    CHECK_STATUS(GP_EIO, result.status);
    CHECK_CONTAINS(result.err.message, "cannot download http://127.0.0.1:1/data.bin: ");
    CHECK(!result.leftover);
    /* an empty directory would be mistaken for the data set */
    CHECK(access(in_folder("a/b"), F_OK) != 0);
}

TEST(existing_files_are_kept_and_partial_ones_resumed)
{
    get_trial result;
    FILE *file;

    site_make();
    mkdir(in_folder("a"), 0777);
    mkdir(in_folder("a/b"), 0777);
    file = fopen(in_folder("a/b/data.bin.part"), "w");
    fwrite(body, 1, 50000, file);
    fclose(file);
    trial_run(&result, (const server_act[]){ RIGHT }, 1, (gp_get_options){ 0 });
    CHECK_STATUS(GP_OK, result.status);
    CHECK(result.whole && !result.leftover);
    CHECK_INT(50000, result.ranges_from);
    trial_run(&result, (const server_act[]){ RIGHT }, 1, (gp_get_options){ 0 });
    CHECK_STATUS(GP_OK, result.status);
    CHECK_INT(0, result.requests);
    file = fopen(in_folder("a/b/data.bin"), "w");
    fputs("mine", file);
    fclose(file);
    trial_run(&result, (const server_act[]){ RIGHT }, 1, (gp_get_options){ 0 });
    CHECK_STATUS(GP_ESTATE, result.status);
    CHECK_CONTAINS(result.err.message, "is not the published file");
    CHECK_INT(0, result.requests);
}

static int cancel_halfway(void *context, const char *file, uint64_t bytes, uint64_t bytes_total)
{
    CHECK_TEXT("data.bin", file);
    CHECK_INT(BODY, bytes_total);
    ++*(int *)context;
    return bytes >= BODY / 2;
}

TEST(a_canceled_download_is_resumed_by_the_next_call)
{
    get_trial result;
    int calls = 0;

    site_make();
    trial_run(&result, (const server_act[]){ STALL }, 1,
              (gp_get_options){ .progress = cancel_halfway, .context = &calls, .keep_part = true });
    CHECK_STATUS(GP_ECANCELED, result.status);
    CHECK(result.leftover);
    trial_run(&result, (const server_act[]){ RIGHT }, 1, (gp_get_options){ .keep_part = true });
    CHECK_STATUS(GP_OK, result.status);
    CHECK(result.whole && !result.leftover);
    CHECK_INT(BODY / 2, result.ranges_from);
}

TEST(wrong_bytes_are_not_kept_for_the_next_call)
{
    get_trial result;

    site_make();
    trial_run(&result, (const server_act[]){ WRONG }, 1, (gp_get_options){ .keep_part = true });
    CHECK_STATUS(GP_ECORRUPT, result.status);
    CHECK(!result.leftover);
    published.sum = NULL; /* without it, the next call could not verify the file */
    trial_run(&result, (const server_act[]){ CUT }, 1, (gp_get_options){ .keep_part = true });
    CHECK_STATUS(GP_EIO, result.status);
    CHECK(!result.leftover);
    published.sum = body_md5;
}

TEST(concurrent_downloads_of_one_file_are_refused)
{
    get_trial result;
    int fd;

    site_make();
    mkdir(in_folder("a"), 0777);
    mkdir(in_folder("a/b"), 0777);
    fd = open(in_folder("a/b/data.bin.part"), O_RDWR | O_CREAT, 0666);
    REQUIRE(fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0);
    trial_run(&result, (const server_act[]){ RIGHT }, 1, (gp_get_options){ 0 });
    CHECK_STATUS(GP_EBUSY, result.status);
    CHECK(result.leftover); /* the other process's part must not be removed */
    close(fd);
}

TEST(a_download_works_without_file_locks)
{
    get_trial result;

    site_make();
    failing_set("flock:1+:ENOLCK:data.bin");
    trial_run(&result, (const server_act[]){ RIGHT }, 1, (gp_get_options){ 0 });
    CHECK_STATUS(GP_OK, result.status);
    CHECK_INT(1, failing_struck());
    remove(in_folder("a/b/data.bin"));
    failing_set("flock:1+:EIO:data.bin");
    trial_run(&result, (const server_act[]){ RIGHT }, 1, (gp_get_options){ 0 });
    CHECK_STATUS(GP_EIO, result.status);
    CHECK_CONTAINS(result.err.message, "cannot lock");
    failing_set(NULL);
}

TEST(progress_is_reported_and_can_cancel)
{
    get_trial result;
    int calls = 0;

    site_make();
    /* The stall keeps the transfer open until the callback has seen the first half. */
    trial_run(&result, (const server_act[]){ STALL }, 1,
              (gp_get_options){ .progress = cancel_halfway, .context = &calls });
    CHECK_STATUS(GP_ECANCELED, result.status);
    CHECK(calls > 0);
    CHECK(!result.leftover);
}

TEST(unknown_data_sets_are_rejected)
{
    gp_error err;

    CHECK_STATUS(GP_EINVAL, gp_get("fashion-minst", NULL, &err));
    CHECK_CONTAINS(err.message, "did you mean \"fashion-mnist\"");
    CHECK_TEXT("fashion-mnist", gp_get_sets[0].name);
    CHECK_INT(4, gp_get_sets[0].file_count);
    for (size_t i = 0; i < 4; i++)
        CHECK_INT(32, strlen(gp_get_sets[0].files[i].sum));
}

TEST(sha256_checksums_are_verified)
{
    get_trial result;

    published.sum = body_sha256;
    CHECK_STATUS(GP_OK, TRY(CUT, RIGHT).status);
    result = TRY(WRONG);
    CHECK_STATUS(GP_ECORRUPT, result.status);
    CHECK_CONTAINS(result.err.message, ": SHA-256 ");
    CHECK_CONTAINS(result.err.message, body_sha256);
    published.sum = body_md5;
}

TEST(a_file_without_published_checksum_is_accepted)
{
    char sum[GP_GET_SUM_BYTES];
    get_trial result;
    gp_error err;

    published = (gp_get_file){ .name = "data.bin" };
    result = TRY(CUT, CUT, RIGHT);
    CHECK_STATUS(GP_OK, result.status);
    CHECK_INT(3, result.requests);
    CHECK_INT(BODY * 3 / 4, result.ranges_from);
    CHECK_STATUS(GP_EIO, TRY(CUT).status);
    CHECK_STATUS(GP_EIO, TRY(NOT_FOUND).status);
    site_make();
    trial_run(&result, (const server_act[]){ RIGHT }, 1, (gp_get_options){ 0 });
    REQUIRE_OK(gp_get_sum(sum, in_folder("a/b/data.bin"), &err), err);
    CHECK_TEXT(body_sha256, sum);
    published = (gp_get_file){ "data.bin", BODY, body_md5 };
}

TEST(without_a_checksum_partial_files_are_not_resumed)
{
    get_trial result;
    FILE *file;

    published = (gp_get_file){ .name = "data.bin" };
    site_make();
    mkdir(in_folder("a"), 0777);
    mkdir(in_folder("a/b"), 0777);
    file = fopen(in_folder("a/b/data.bin.part"), "w");
    fputs("of another file", file);
    fclose(file);
    trial_run(&result, (const server_act[]){ RIGHT }, 1, (gp_get_options){ 0 });
    CHECK_STATUS(GP_OK, result.status);
    CHECK(result.whole);
    CHECK_INT(0, result.ranges_from);
    published = (gp_get_file){ "data.bin", BODY, body_md5 };
}

TEST(every_known_model_has_a_size_a_checksum_and_a_url)
{
    size_t count = 0;

    for (const gp_get_set *set = gp_get_models; set->name != NULL; set++, count++) {
        CHECK_INT(1, set->file_count);
        CHECK_INT(64, strlen(set->files[0].sum));
        CHECK_INT(64, strspn(set->files[0].sum, "0123456789abcdef"));
        CHECK(set->files[0].bytes > 1000000);
        CHECK(strncmp(set->url, "https://huggingface.co/onnxmodelzoo/", 36) == 0);
        for (const gp_get_set *other = gp_get_models; other < set; other++)
            CHECK(strcmp(other->files[0].sum, set->files[0].sum) != 0);
    }
    CHECK_INT(9, count);
}
