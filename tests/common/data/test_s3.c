/* S3 requests, against a moto server behind a proxy. The proxy checks signatures, and injects
 * stalls, truncation and errors. */
#include "common/data/s3/s3.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "common/base/memory/secret.h"
#include "common/data/s3/s3_credentials.h"
#include "tests/common/data/folder.h"
#include "tests/fake/s3.h"
#include "tests/gp_test.h"

/* Long timeouts by default, because requests are counted and a busy server may be silent for a
 * while. Tests of timeouts set shorter ones. */
static gp_s3_retry_policy retry = { .tries = 3, .wait_ms = 10, .connect_s = 600, .stall_s = 600 };

#define NEED(server)                                                                                         \
    s3_server *server = s3_start();                                                                          \
    S3_REQUIRE(server);                                                                                      \
    credentials_set("AKIDTEST", "secret-for-tests", NULL);                                                   \
    s3_server_run(server, "keys AKIDTEST secret-for-tests");                                                 \
    s3_server_run(server, "requests");                                                                       \
    gp_buffer_init(&bytes, 1000)

static void credentials_set(const char *id, const char *secret, const char *token)
{
    setenv("AWS_CONFIG_FILE", "/nonexistent", 1);
    setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent", 1);
    unsetenv("AWS_PROFILE");
    unsetenv("AWS_REGION");
    unsetenv("AWS_DEFAULT_REGION");
    unsetenv("AWS_ENDPOINT_URL");
    setenv("AWS_ACCESS_KEY_ID", id, 1);
    setenv("AWS_SECRET_ACCESS_KEY", secret, 1);
    if (token != NULL)
        setenv("AWS_SESSION_TOKEN", token, 1);
    else
        unsetenv("AWS_SESSION_TOKEN");
}

static gp_s3 *bucket_open(s3_server *server, const char *path)
{
    gp_s3_source source;
    gp_error err;
    gp_s3 *s3 = NULL;

    if (gp_s3_source_parse(&source, s3_source(server, path, "0"), &err) != GP_OK ||
        gp_s3_open(&s3, &source, &retry, &err) != GP_OK)
        GP_TEST_FAIL("%s: %s", path, err.message);
    return s3;
}

/* Open a bucket with one object, photos/one, which contains 26 letters. */
static gp_s3 *letters_open(s3_server *server)
{
    static bool made;

    if (!made) {
        s3_server_run(server, "bucket letters");
        s3_server_run(server, "put letters photos/one abcdefghijklmnopqrstuvwxyz");
        made = true;
    }
    return bucket_open(server, "letters/photos");
}

static gp_status read_all(gp_s3 *s3, const char *key, gp_buffer *out, gp_error *err)
{
    gp_s3_range range = { .key = key, .bytes = GP_S3_REST };

    return gp_s3_read(s3, &range, out, err);
}

typedef struct seen_keys {
    uint32_t count;
    uint64_t bytes;
    char last[200];
    gp_status stop;
} seen_keys;

static gp_status key_see(void *context, const gp_s3_object *object, gp_error *err)
{
    seen_keys *seen = context;

    seen->count++;
    seen->bytes += object->bytes;
    snprintf(seen->last, sizeof(seen->last), "%s", object->key);
    return seen->stop == GP_OK ? GP_OK : gp_fail(err, seen->stop, "enough");
}

/* ---- sources ---- */

TEST(sources_are_parsed_and_formatted)
{
    gp_s3_source source;
    char text[300];
    gp_error err;

    REQUIRE_OK(gp_s3_source_parse(&source,
                                  "s3://my.bucket//a/b c/?endpoint=http://localhost:9000/&cache=2GiB", &err),
               err);
    CHECK_TEXT("my.bucket", source.bucket);
    CHECK_TEXT("a/b c", source.key);
    CHECK_TEXT("http://localhost:9000", source.endpoint);
    CHECK_INT(2ll << 30, source.cache_bytes);
    REQUIRE_OK(gp_s3_source_parse(&source, "s3://bucket/what?/why?region=eu-west-1&path-style=no", &err),
               err);
    CHECK_TEXT("what?/why", source.key);
    CHECK_TEXT("eu-west-1", source.region);
    REQUIRE_OK(gp_s3_source_format(&source, false, text, sizeof(text), &err), err);
    CHECK_TEXT("s3://bucket/what?/why?region=eu-west-1&path-style=no", text);
    REQUIRE_OK(gp_s3_source_parse(&source, "s3://bucket/what?", &err), err);
    CHECK_TEXT("what?", source.key);
}

TEST(malformed_sources_are_rejected_with_the_correct_form)
{
    static const char *const wrong[][2] = {
        { "s3://", "3 to 63" },
        { "s3://a/b", "3 to 63" },
        { "s3://bu cket/b", "3 to 63" },
        { "s3://bucket/b?endpoint=localhost", "a URL such as http://localhost:9000" },
        { "s3://bucket/b?endpoint=http://id:secret@host", "a URL such as" },
        { "s3://bucket/b?endpoint=http://host/below", "a URL such as" },
        { "s3://bucket/b?endpoint=http://", "a URL such as" },
        { "s3://bucket/b?endpoint=https:///", "a URL such as" },
        { "s3://bucket/b?region=eu west", "a name such as eu-central-1" },
        { "s3://bucket/b?cache=much", "a size such as 20GiB" },
        { "s3://bucket/b?region=a&colour=blue", "unknown option \"colour=blue\"" },
        { "s3://bucket/b?path-style=maybe", "yes or no" },
    };
    gp_s3_source source;
    gp_error err;

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        CHECK_STATUS(GP_EINVAL, gp_s3_source_parse(&source, wrong[i][0], &err));
        CHECK_CONTAINS(err.message, wrong[i][1]);
    }
}

TEST(urls_have_the_bucket_in_the_path_or_the_host)
{
    gp_s3_source source;
    char url[400];
    gp_error err;

    credentials_set("a", "b", NULL);
    REQUIRE_OK(gp_s3_source_parse(&source, "s3://bucket/p?region=eu-central-1", &err), err);
    REQUIRE_OK(gp_s3_source_complete(&source, &err), err);
    REQUIRE_OK(gp_s3_url(&source, "a b/ü+&=.jpg", url, sizeof(url), &err), err);
    CHECK_TEXT("https://bucket.s3.eu-central-1.amazonaws.com/a%20b/%C3%BC%2B%26%3D.jpg", url);
    REQUIRE_OK(gp_s3_source_parse(&source, "s3://dotted.bucket/p", &err), err);
    REQUIRE_OK(gp_s3_source_complete(&source, &err), err);
    REQUIRE_OK(gp_s3_url(&source, "", url, sizeof(url), &err), err);
    CHECK_TEXT("https://s3.us-east-1.amazonaws.com/dotted.bucket/", url);
    setenv("AWS_ENDPOINT_URL", "http://host:1", 1);
    setenv("AWS_REGION", "north", 1);
    REQUIRE_OK(gp_s3_source_parse(&source, "s3://bucket/p", &err), err);
    REQUIRE_OK(gp_s3_source_complete(&source, &err), err);
    REQUIRE_OK(gp_s3_url(&source, "k", url, sizeof(url), &err), err);
    CHECK_TEXT("http://host:1/bucket/k", url);
    CHECK_TEXT("north", source.region);
    REQUIRE_OK(gp_s3_source_parse(&source, "s3://bucket/p?path-style=no", &err), err);
    REQUIRE_OK(gp_s3_source_complete(&source, &err), err);
    REQUIRE_OK(gp_s3_url(&source, "k", url, sizeof(url), &err), err);
    CHECK_TEXT("http://bucket.host:1/k", url);
    CHECK_STATUS(GP_EUNSUPPORTED, gp_s3_url(&source, "a/../k", url, sizeof(url), &err));
    CHECK_STATUS(GP_EUNSUPPORTED, gp_s3_url(&source, ".", url, sizeof(url), &err));
    unsetenv("AWS_ENDPOINT_URL");
    unsetenv("AWS_REGION");
}

/* ---- credentials ---- */

TEST(the_environment_precedes_profiles)
{
    static const char text[] =
        "# comment\n[default]\naws_access_key_id = ONE\naws_secret_access_key=first\n\n"
        "[profile two]\r\n  region = eu-west-1\r\naws_access_key_id=TWO\r\n"
        "aws_secret_access_key = second==\r\naws_session_token = tok\r\n";
    char value[80], path[] = "/tmp/gp-s3-XXXXXX";
    gp_s3_credentials found;
    gp_error err;
    int fd = mkstemp(path);

    CHECK(gp_s3_ini_get(text, "two", "region", value, sizeof(value)));
    CHECK_TEXT("eu-west-1", value);
    CHECK(!gp_s3_ini_get(text, "default", "region", value, sizeof(value)));
    CHECK(!gp_s3_ini_get(text, "tw", "region", value, sizeof(value)));
    CHECK(write(fd, text, sizeof(text) - 1) == sizeof(text) - 1);
    close(fd);
    credentials_set("ENV", "env", "t");
    setenv("AWS_SHARED_CREDENTIALS_FILE", path, 1);
    REQUIRE_OK(gp_s3_credentials_find(&found, "", &err), err);
    CHECK_TEXT("ENV", found.id);
    CHECK_TEXT("t", found.token);
    REQUIRE_OK(gp_s3_credentials_find(&found, "two", &err), err);
    CHECK_TEXT("TWO", found.id);
    CHECK_TEXT("second==", found.secret);
    CHECK_TEXT("tok", found.token);
    CHECK_CONTAINS(found.from, "the profile \"two\" in /tmp/gp-s3-");
    unsetenv("AWS_ACCESS_KEY_ID");
    REQUIRE_OK(gp_s3_credentials_find(&found, "", &err), err);
    CHECK_TEXT("ONE", found.id);
    CHECK_TEXT("", found.token);
    setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent", 1);
    CHECK_STATUS(GP_EPERM, gp_s3_credentials_find(&found, "", &err));
    CHECK_CONTAINS(err.message, "gradpool up --secret-env");
    unlink(path);
}

/* ---- core files ---- */

#define CORE_CANARY "canary-of-a-core-77e1"

enum guard { UNGUARDED, GUARDED, GUARDED_FILES };

/* Fork a process with credentials in environment and memory, which aborts in the test folder. */
static void abort_with_credentials(enum guard guard)
{
    static gp_s3_credentials found;
    const struct rlimit all = { RLIM_INFINITY, RLIM_INFINITY };
    pid_t child = fork();

    if (child == 0) {
        credentials_set("ENV", CORE_CANARY, NULL);
        if (chdir(folder) != 0 || setrlimit(RLIMIT_CORE, &all) != 0 ||
            prctl(PR_SET_DUMPABLE, 1) != 0) /* earlier tests disabled core dumps for this process */
            _exit(1);
        if (guard == UNGUARDED)
            found.secret[0] = 'x';
        else if (gp_s3_credentials_find(&found, "", NULL) != GP_OK)
            _exit(1);
        if (guard == GUARDED_FILES)
            gp_secret_guard_files();
        signal(SIGABRT, SIG_DFL);
        abort();
    }
    int state;

    waitpid(child, &state, 0);
    CHECK(WIFSIGNALED(state) && WTERMSIG(state) == SIGABRT);
}

/* Search the core file in the folder for the canary, and remove the file. Return the file size in
 * bytes; 0: no core file. */
static long core_search(bool *found)
{
    DIR *directory = opendir(folder);
    struct dirent *entry;
    long bytes = 0;

    *found = false;
    while ((entry = readdir(directory)) != NULL) {
        static char data[1 << 20];
        size_t got, kept = 0;
        FILE *file;

        if (strncmp(entry->d_name, "core", 4) != 0 || (file = fopen(in_folder(entry->d_name), "r")) == NULL)
            continue;
        while ((got = fread(data + kept, 1, sizeof(data) - kept, file)) > 0) {
            bytes += (long)got;
            got += kept;
            *found |= memmem(data, got, CORE_CANARY, strlen(CORE_CANARY)) != NULL;
            kept = got < 64 ? got : 64;
            memmove(data, data + got - kept, kept);
        }
        fclose(file);
        unlink(in_folder(entry->d_name));
    }
    closedir(directory);
    return bytes;
}

TEST(core_files_contain_no_credentials)
{
    char pattern[200] = "";
    FILE *file = fopen("/proc/sys/kernel/core_pattern", "r");
    struct rlimit limit;
    bool found;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    SKIP("a core file would include the sanitizer's shadow memory");
#endif
    if (file == NULL || fgets(pattern, sizeof(pattern), file) == NULL)
        pattern[0] = '|';
    if (file != NULL)
        fclose(file);
    if (pattern[0] == '|' || pattern[0] == '/' || getrlimit(RLIMIT_CORE, &limit) != 0 ||
        limit.rlim_max != RLIM_INFINITY)
        SKIP("core files are not written to the working directory (%.40s)", pattern);
    folder_make();
    abort_with_credentials(UNGUARDED); /* verify that the search finds the canary */
    if (core_search(&found) == 0)
        SKIP("core files are disabled here");
    CHECK(found);
    abort_with_credentials(GUARDED);
    CHECK_INT(0, core_search(&found));
    abort_with_credentials(GUARDED_FILES);
    core_search(&found);
    CHECK(!found);
}

TEST(credentials_disable_core_dumps)
{
    gp_s3_credentials found;
    char filter[16] = "";
    gp_error err;
    int fd;

    credentials_set("ENV", "env", NULL);
    REQUIRE_OK(gp_s3_credentials_find(&found, "", &err), err);
    CHECK_INT(0, prctl(PR_GET_DUMPABLE));
    gp_secret_guard_files(); /* allows access to the process's /proc files, but not to its memory */
    CHECK_INT(1, prctl(PR_GET_DUMPABLE));
    fd = open("/proc/self/coredump_filter", O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0 && read(fd, filter, sizeof(filter) - 1) > 0 && strtoul(filter, NULL, 16) == 0);
    close(fd);
    gp_secret_guard();
    CHECK_INT(1, prctl(PR_GET_DUMPABLE));
}

TEST(secrets_are_replaced_atomically_and_never_printed)
{
    char value[80], number[16];
    gp_error err;
    int pool, update;
    uint64_t before;

    setenv("AWS_ACCESS_KEY_ID", "POOL", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "canary", 1);
    unsetenv("AWS_SESSION_TOKEN");
    REQUIRE_OK(gp_secrets_new(&pool, &err), err);
    REQUIRE_OK(gp_secrets_new(&update, &err), err);
    CHECK_STATUS(GP_EINVAL, gp_secrets_set(update, "AWS_SECRET_ACCESS_KEY,AWS_SESSION_TOKEN", &err));
    CHECK_CONTAINS(err.message, "AWS_SESSION_TOKEN is not set");
    CHECK_STATUS(GP_EINVAL, gp_secrets_set(update, "AWS_SECRET_ACCESS_KEY=canary", &err));
    CHECK(strstr(err.message, "canary") == NULL);
    snprintf(number, sizeof(number), "%d", pool);
    setenv(GP_SECRETS_FD_VARIABLE, number, 1);
    gp_secrets_adopt();
    pool = gp_secrets_fd(); /* gp_secrets_adopt() moved the descriptor */
    CHECK(getenv(GP_SECRETS_FD_VARIABLE) == NULL);
    CHECK_INT(0, gp_secrets_version());
    CHECK(!gp_secrets_get("AWS_SECRET_ACCESS_KEY", value, sizeof(value)));
    REQUIRE_OK(gp_secrets_set(update, "AWS_ACCESS_KEY_ID,AWS_SECRET_ACCESS_KEY", &err), err);
    REQUIRE_OK(gp_secrets_copy(pool, update, &err), err);
    before = gp_secrets_version();
    CHECK(before != 0);
    CHECK(gp_secrets_get("AWS_SECRET_ACCESS_KEY", value, sizeof(value)));
    CHECK_TEXT("canary", value);
    CHECK(!gp_secrets_get("AWS_SECRET", value, sizeof(value)));
    REQUIRE_OK(gp_secrets_set(update, "AWS_ACCESS_KEY_ID", &err), err);
    REQUIRE_OK(gp_secrets_copy(pool, update, &err), err);
    CHECK(gp_secrets_version() != before);
    CHECK(!gp_secrets_get("AWS_SECRET_ACCESS_KEY", value, sizeof(value)));
    CHECK_STATUS(GP_EPROTO, gp_secrets_copy(pool, STDIN_FILENO, &err));
    REQUIRE_OK(gp_secrets_set(pool, "", &err), err); /* clean up for later tests */
    CHECK_INT(0, gp_secrets_version());
    close(update);
}

/* ---- requests ---- */

static gp_s3 *s3; /* bucket and contents of an object, for the running test */
static gp_buffer bytes;

TEARDOWN()
{
    gp_s3_close(s3);
    s3 = NULL;
    gp_buffer_deinit(&bytes);
}

TEST(objects_are_read_whole_and_in_ranges)
{
    NEED(server);
    gp_s3_range range = { .key = "photos/one", .offset = 3, .bytes = 4 };
    gp_error err;

    s3 = letters_open(server);
    REQUIRE_OK(read_all(s3, "photos/one", &bytes, &err), err);
    CHECK_TEXT("abcdefghijklmnopqrstuvwxyz", gp_buffer_text(&bytes));
    REQUIRE_OK(gp_s3_read(s3, &range, &bytes, &err), err);
    CHECK_TEXT("defg", gp_buffer_text(&bytes));
    CHECK_INT(26, range.object_bytes);
    CHECK(range.tag != 0);
    range = (gp_s3_range){ .key = "photos/one", .offset = 24, .bytes = GP_S3_REST };
    REQUIRE_OK(gp_s3_read(s3, &range, &bytes, &err), err);
    CHECK_TEXT("yz", gp_buffer_text(&bytes));
    gp_buffer_deinit(&bytes);
    gp_buffer_init(&bytes, 20);
    CHECK_STATUS(GP_ELIMIT, read_all(s3, "photos/one", &bytes, &err));
}

TEST(keys_with_special_characters_are_signed_correctly)
{
    NEED(server);
    static const char *const keys[] = { "a b.jpg",     "a+b.jpg",  "a%20b",      "\xc3\xbc/\xe2\x82\xac.jpg",
                                        "x=1&y=2?z#f", "a..b/.c",  "(1),'2'!*$", "~-_.",
                                        "\"<>&",       "q//twice", "\\back" };
    seen_keys seen = { 0 };
    char encoded[300];
    gp_error err;

    s3 = bucket_open(server, "oddkeys");
    s3_server_run(server, "bucket oddkeys");
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        CHECK(gp_s3_encode(encoded, sizeof(encoded), keys[i], false));
        s3_server_run(server, "put oddkeys %s %zu", encoded, i + 100);
    }
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        char wanted[8];

        snprintf(wanted, sizeof(wanted), "%zu", i + 100);
        if (read_all(s3, keys[i], &bytes, &err) != GP_OK)
            GP_TEST_FAIL("%s: %s", keys[i], err.message);
        CHECK_TEXT(wanted, gp_buffer_text(&bytes));
        seen.count = 0;
        if (gp_s3_list(s3, keys[i], key_see, &seen, &err) != GP_OK)
            GP_TEST_FAIL("%s: %s", keys[i], err.message);
        CHECK_INT(1, seen.count);
        CHECK_TEXT(keys[i], seen.last);
    }
}

TEST(a_listing_spans_several_pages)
{
    NEED(server);
    seen_keys seen = { 0 };
    gp_error err;

    s3 = bucket_open(server, "pages");
    s3_server_run(server, "bucket pages");
    s3_server_run(server, "many pages many 1003 2");
    REQUIRE_OK(gp_s3_list(s3, "many/", key_see, &seen, &err), err);
    CHECK_INT(1003, seen.count);
    CHECK_INT(2006, seen.bytes);
    CHECK_TEXT("many/001002.jpg", seen.last);
    CHECK_TEXT("2 0", s3_server_run(server, "requests"));
    seen = (seen_keys){ .stop = GP_ECANCELED };
    CHECK_STATUS(GP_ECANCELED, gp_s3_list(s3, "many/", key_see, &seen, &err));
    CHECK_INT(1, seen.count);
    seen = (seen_keys){ 0 };
    REQUIRE_OK(gp_s3_list(s3, "none/", key_see, &seen, &err), err);
    CHECK_INT(0, seen.count);
}

TEST(prefixes_with_plus_signs_are_listed)
{
    NEED(server);
    seen_keys seen = { 0 };
    gp_error err;

    s3 = bucket_open(server, "plus");
    s3_server_run(server, "bucket plus");
    s3_server_run(server, "many plus a 990 1");
    s3_server_run(server, "many plus b+c 20 1");
    s3_server_run(server, "put plus b/x+1 x");
    REQUIRE_OK(gp_s3_list(s3, "b+c/", key_see, &seen, &err), err);
    CHECK_INT(20, seen.count);
    CHECK_TEXT("b+c/000019.jpg", seen.last);
    seen = (seen_keys){ 0 };
    /* the first page ends at b+c/000009.jpg */
    REQUIRE_OK(gp_s3_list(s3, "", key_see, &seen, &err), err);
    CHECK_INT(1011, seen.count);
    CHECK_TEXT("b/x+1", seen.last);
}

TEST(transient_failures_are_retried)
{
    NEED(server);
    static const char *const faults[] = { "503", "500", "cut 5", "nothing", "stall 3", "drip 1" };
    gp_s3_retry_policy usual = retry;
    uint64_t retries = 0;
    gp_error err;
    s3 = letters_open(server);

    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
        if (i == 4) { /* a busy machine may also be silent for a second */
            gp_s3_close(s3);
            retry.stall_s = 1;
            retry.tries = 30;
            s3 = letters_open(server);
            retry = usual;
            retries = 0;
        }
        s3_server_run(server, "fault %d %s", i < 4 ? 2 : 1, faults[i]);
        if (read_all(s3, "photos/one", &bytes, &err) != GP_OK)
            GP_TEST_FAIL("%s: %s", faults[i], err.message);
        CHECK_TEXT("abcdefghijklmnopqrstuvwxyz", gp_buffer_text(&bytes));
        CHECK(gp_s3_get_stats(s3).retries > retries);
        retries = gp_s3_get_stats(s3).retries;
    }
}

TEST(permanent_failures_report_object_cause_and_attempts)
{
    NEED(server);
    gp_s3_range range = { .key = "photos/one", .bytes = 26 };
    gp_error err;

    s3 = letters_open(server);
    s3_server_run(server, "fault 3 503");
    CHECK_STATUS(GP_EIO, read_all(s3, "photos/one", &bytes, &err));
    CHECK_CONTAINS(err.message, "s3://letters/photos/one: the server replied 503 SlowDown");
    CHECK_CONTAINS(err.message, "tried 3 times");
    s3_server_run(server, "fault 3 cut 5");
    CHECK_STATUS(GP_EIO, read_all(s3, "photos/one", &bytes, &err));
    CHECK_CONTAINS(err.message, "s3://letters/photos/one");
    s3_server_run(server, "fault 3 longer 7");
    CHECK_STATUS(GP_ECORRUPT, gp_s3_read(s3, &range, &bytes, &err));
    CHECK_CONTAINS(err.message, "more than 26 bytes");
    s3_server_run(server, "requests");
    CHECK_STATUS(GP_ENOENT, read_all(s3, "photos/two", &bytes, &err));
    CHECK_CONTAINS(err.message, "s3://letters/photos/two: no such object");
    gp_s3_close(s3);
    s3 = bucket_open(server, "nobucket");
    CHECK_STATUS(GP_ENOENT, gp_s3_list(s3, "", key_see, &(seen_keys){ 0 }, &err));
    CHECK_CONTAINS(err.message, "no such bucket: nobucket at http://127.0.0.1:");
}

TEST(an_object_changed_after_the_listing_is_rejected)
{
    NEED(server);
    gp_s3_range range = { .key = "photos/one", .bytes = 26 };
    gp_error err;

    s3 = letters_open(server);
    REQUIRE_OK(gp_s3_read(s3, &range, &bytes, &err), err);
    REQUIRE_OK(gp_s3_read(s3, &range, &bytes, &err), err);
    s3_server_run(server, "fault 1 etag");
    CHECK_STATUS(GP_ECORRUPT, gp_s3_read(s3, &range, &bytes, &err));
    CHECK_CONTAINS(err.message, "photos/one has changed since it was listed");
    range = (gp_s3_range){ .key = "photos/gone", .bytes = 26, .tag = 7 };
    CHECK_STATUS(GP_ENOENT, gp_s3_read(s3, &range, &bytes, &err));
    CHECK_CONTAINS(err.message, ", although it was listed");
}

TEST(a_refusal_reports_only_the_origin_of_the_credentials)
{
    NEED(server);
    static const char *const keys[][2] = { { "AKIDTEST", "canary-secret" },
                                           { "canary-id", "secret-for-tests" } };
    static const char *const words[] = { "SignatureDoesNotMatch", "InvalidAccessKeyId" };
    gp_error err;

    for (int i = 0; i < 2; i++) {
        credentials_set(keys[i][0], keys[i][1], NULL);
        s3 = letters_open(server);
        CHECK_STATUS(GP_EPERM, read_all(s3, "photos/one", &bytes, &err));
        CHECK_CONTAINS(err.message, words[i]);
        CHECK_CONTAINS(err.message, "the environment (AWS_ACCESS_KEY_ID); they are invalid");
        CHECK(strstr(err.message, "canary") == NULL);
        gp_s3_close(s3);
    }
    credentials_set("AKIDTEST", "secret-for-tests", NULL);
    s3 = letters_open(server);
    s3_server_run(server, "fault 2 403");
    CHECK_STATUS(GP_EPERM, read_all(s3, "photos/one", &bytes, &err));
    CHECK_CONTAINS(err.message, "403 AccessDenied");
    s3_server_run(server, "requests");
    s3_server_run(server, "fault 2 skew");
    CHECK_STATUS(GP_EPERM, read_all(s3, "photos/one", &bytes, &err));
    CHECK_CONTAINS(err.message, "the clock of this host is off by ");
    s3_server_run(server, "requests");
    s3_server_run(server, "fault 2 expired");
    CHECK_STATUS(GP_EPERM, read_all(s3, "photos/one", &bytes, &err));
    CHECK_CONTAINS(err.message, "the credentials have expired");
    s3_server_run(server, "requests");
}

TEST(a_session_token_is_sent_and_signed)
{
    NEED(server);
    gp_error err;

    s3_server_run(server, "keys AKIDTEST secret-for-tests token/with+signs==");
    credentials_set("AKIDTEST", "secret-for-tests", "token/with+signs==");
    s3 = letters_open(server);
    REQUIRE_OK(read_all(s3, "photos/one", &bytes, &err), err);
}

TEST(renewed_credentials_are_used_after_a_refusal)
{
    NEED(server);
    gp_error err;

    s3 = letters_open(server);
    s3_server_run(server, "keys AKIDTEST another-secret");
    CHECK_STATUS(GP_EPERM, read_all(s3, "photos/one", &bytes, &err));
    credentials_set("AKIDTEST", "another-secret", NULL);
    REQUIRE_OK(read_all(s3, "photos/one", &bytes, &err), err);
}

static void *read_one(void *context)
{
    gp_buffer own;
    gp_error err;

    gp_buffer_init(&own, 100);
    *(gp_status *)context = read_all(s3, "photos/one", &own, &err);
    gp_buffer_deinit(&own);
    return NULL;
}

/* All requests in flight were signed with the old credentials; only one finds new ones. */
TEST(renewed_credentials_are_used_by_all_requests_in_flight)
{
    NEED(server);
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    gp_status results[THREADS];

    s3 = letters_open(server);
    s3_server_run(server, "keys AKIDTEST another-secret");
    s3_server_run(server, "delay 200");
    credentials_set("AKIDTEST", "another-secret", NULL);
    for (int i = 0; i < THREADS; i++)
        REQUIRE(pthread_create(&threads[i], NULL, read_one, &results[i]) == 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    s3_server_run(server, "delay 0");
    for (int i = 0; i < THREADS; i++)
        CHECK_STATUS(GP_OK, results[i]);
}

TEST(a_wrong_region_fails_with_the_right_one)
{
    NEED(server);
    gp_error err;

    s3 = letters_open(server);
    s3_server_run(server, "fault 1 moved eu-west-3");
    CHECK_STATUS(GP_EINVAL, read_all(s3, "photos/one", &bytes, &err));
    CHECK_CONTAINS(err.message, "in region eu-west-3, not in us-east-1; add --s3-region eu-west-3");
}

TEST(a_public_bucket_is_read_without_credentials)
{
    NEED(server);
    char source_text[500];
    gp_s3_source source;
    gp_error err;

    gp_s3_close(letters_open(server)); /* creates the bucket */
    s3_server_run(server, "keys anyone");
    unsetenv("AWS_ACCESS_KEY_ID");
    snprintf(source_text, sizeof(source_text), "%s&anonymous=yes", s3_source(server, "letters", "0"));
    REQUIRE_OK(gp_s3_source_parse(&source, source_text, &err), err);
    REQUIRE_OK(gp_s3_open(&s3, &source, &retry, &err), err);
    REQUIRE_OK(read_all(s3, "photos/one", &bytes, &err), err);
}

TEST(malformed_listings_are_rejected)
{
    NEED(server);
#define LISTING "%3CListBucketResult%3E"
#define OBJECT(key, size)                                                                                    \
    "%3CContents%3E%3CKey%3E" key "%3C/Key%3E%3CSize%3E" size "%3C/Size%3E%3C/Contents%3E"
#define MORE "%3CIsTruncated%3Etrue%3C/IsTruncated%3E"
#define END  "%3C/ListBucketResult%3E"
    static const char *const cases[][2] = {
        { "nonsense", "not a ListBucketResult" },
        { "%3C!DOCTYPE%20a%20%5B%3C!ENTITY%20b%20%22c%22%3E%5D%3E" LISTING END,
          "an element with an empty or long name" },
        { LISTING OBJECT("photos/a", "1"), "truncated" },
        { LISTING OBJECT("photos/a", "-1") END, "a malformed size" },
        { LISTING OBJECT("photos/b", "1") OBJECT("photos/a", "1") END, "is not sorted" },
        { LISTING OBJECT("secret/a", "1") END, "a key with another prefix" },
        { LISTING MORE END, "has no new objects" },
        { LISTING OBJECT("photos/%26evil;", "1") END, "an unknown entity" },
    };
    gp_error err;

    s3 = letters_open(server);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        s3_server_run(server, "fault 1 xml %s", cases[i][0]);
        CHECK_STATUS(GP_ECORRUPT, gp_s3_list(s3, "photos/", key_see, &(seen_keys){ 0 }, &err));
        CHECK_CONTAINS(err.message, cases[i][1]);
    }
    /* A server that repeats the same page. */
    s3_server_run(server, "fault 9 xml %s", LISTING MORE OBJECT("photos/a", "1") END);
    CHECK_STATUS(GP_ECORRUPT, gp_s3_list(s3, "photos/", key_see, &(seen_keys){ 0 }, &err));
    CHECK_CONTAINS(err.message, "photos/a follows photos/a");
    CHECK_TEXT("10 0", s3_server_run(server, "requests"));
}

TEST(an_unreachable_server_fails_after_retries)
{
    gp_s3_source source;
    gp_error err;

    credentials_set("a", "b", NULL);
    gp_buffer_init(&bytes, 1000);
    REQUIRE_OK(gp_s3_source_parse(&source, "s3://bucket/p?endpoint=http://127.0.0.1:1", &err), err);
    REQUIRE_OK(gp_s3_open(&s3, &source, &retry, &err), err);
    CHECK_STATUS(GP_EIO, read_all(s3, "k", &bytes, &err));
    CHECK_CONTAINS(err.message, "s3://bucket/k");
    CHECK_CONTAINS(err.message, "tried 3 times");
}

typedef struct many_reads {
    gp_s3 *s3;
    uint32_t failed;
} many_reads;

static void *reads_run(void *context)
{
    many_reads *reads = context;
    gp_buffer object;

    gp_buffer_init(&object, 1000);
    for (int i = 0; i < 5; i++)
        reads->failed += read_all(reads->s3, "photos/one", &object, NULL) != GP_OK || object.bytes != 26;
    gp_buffer_deinit(&object);
    return NULL;
}

TEST(concurrent_threads_reuse_connections)
{
    NEED(server);
    enum { THREADS = 8 };
    many_reads reads[THREADS];
    pthread_t threads[THREADS];
    s3 = letters_open(server);

    for (int i = 0; i < THREADS; i++) {
        reads[i] = (many_reads){ .s3 = s3 };
        REQUIRE(pthread_create(&threads[i], NULL, reads_run, &reads[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        CHECK_INT(0, reads[i].failed);
    }
    CHECK_INT(5 * THREADS, gp_s3_get_stats(s3).requests);
}
