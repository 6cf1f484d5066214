/* S3 requests: sign, send, check the response, retry. See s3.h for the interface. The file is long
 * because it keeps one request together, from the query string to the last retry. */
#include "common/data/s3/s3.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "common/base/memory/alloc.h"
#include "common/base/clock.h"
#include "common/base/text/log.h"
#include "common/base/memory/secret.h"
#include "common/data/s3/curl.h"
#include "common/data/s3/s3_credentials.h"

enum { CURL_VERSION_MIN = 0x075800 /* 7.88 */ };
enum { WAIT_MAX_MS = 10000, SLOW_BYTES_PER_SECOND = 1024, PROBLEM_BYTES_MAX = 16 << 10 };

struct gp_s3 {
    gp_s3_source source;
    gp_s3_retry_policy retry;
    const gp_curl *curl;
    pthread_mutex_t lock; /* protects all fields below */
    CURL *idle[GP_S3_CONNECTIONS_MAX];
    uint32_t idle_count;
    gp_s3_credentials credentials;
    uint64_t secrets_version;     /* version of the pool's secrets when the credentials were read */
    uint32_t credentials_version; /* incremented when the credentials change */
    _Atomic uint64_t requests, retries;
};

/* A request, and the response to the latest attempt. */
typedef struct s3_request {
    gp_s3 *s3;
    char url[GP_S3_URL_BYTES_MAX];
    char name[GP_S3_KEY_BYTES_MAX + 80]; /* object name for messages */
    char range[64];                      /* value of the Range header; "": whole object */
    gp_s3_range *wanted;                 /* requested range and expected tag; NULL: a listing */
    gp_buffer *body;
    char from[200];               /* origin of the credentials, for messages */
    uint32_t credentials_version; /* of the credentials that signed the latest attempt */

    CURL *handle;
    CURLcode code;
    long http;
    uint64_t tag, object_bytes, range_begin;
    char region[64]; /* bucket region as reported by the server */
    time_t date;     /* server clock; 0: not reported */
    bool has_range, too_long;
    gp_error body_error;
    size_t problem_bytes;
    char problem[PROBLEM_BYTES_MAX + 1];
    char detail[CURL_ERROR_SIZE];
} s3_request;

/* ---- opening ---- */

gp_status gp_s3_open(gp_s3 **out, const gp_s3_source *source, const gp_s3_retry_policy *retry, gp_error *err)
{
    static atomic_flag reported = ATOMIC_FLAG_INIT;
    gp_s3 *s3 = gp_calloc(1, sizeof(*s3));
    const char *host = s3 == NULL ? NULL : s3->source.endpoint + strlen("http://");
    gp_status status;

    if (s3 == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for reading s3://%s", source->bucket);
    pthread_mutex_init(&s3->lock, NULL);
    s3->source = *source;
    s3->retry = retry != NULL ? *retry : (gp_s3_retry_policy){ 0 };
    s3->retry.tries = s3->retry.tries == 0 ? 5 : s3->retry.tries;
    s3->retry.wait_ms = s3->retry.wait_ms == 0 ? 200 : s3->retry.wait_ms;
    s3->retry.connect_s = s3->retry.connect_s == 0 ? 10 : s3->retry.connect_s;
    s3->retry.stall_s = s3->retry.stall_s == 0 ? 20 : s3->retry.stall_s;
    status = gp_s3_source_complete(&s3->source, err);
    if (status == GP_OK)
        status = gp_curl_load(&s3->curl, err);
    /* An older libcurl cannot sign and would send the secret as a password. */
    if (status == GP_OK && s3->curl->version_info(CURLVERSION_NOW)->version_num < CURL_VERSION_MIN)
        status = gp_fail(err, GP_EVERSION, "libcurl %s cannot sign S3 requests; install 7.88 or newer",
                         s3->curl->version_info(CURLVERSION_NOW)->version);
    if (status == GP_OK && !s3->source.anonymous) {
        s3->secrets_version = gp_secrets_version();
        status = gp_s3_credentials_find(&s3->credentials, s3->source.profile, err);
    }
    if (status != GP_OK) {
        gp_s3_close(s3);
        return status;
    }
    /* Warn once if the connection is not encrypted. Signatures protect the secret, but an
     * eavesdropper sees the data and the session token. */
    if (strncmp(s3->source.endpoint, "http://", 7) == 0 && strncmp(host, "127.", 4) != 0 &&
        strncmp(host, "localhost", 9) != 0 && strncmp(host, "[::1]", 5) != 0 &&
        !atomic_flag_test_and_set(&reported))
        gp_log(GP_LOG_WARN, "s3-unencrypted",
               "%s is not encrypted: the data and a session token are sent in clear text; use https://",
               s3->source.endpoint);
    *out = s3;
    return GP_OK;
}

void gp_s3_close(gp_s3 *s3)
{
    if (s3 == NULL)
        return;
    for (uint32_t i = 0; i < s3->idle_count; i++)
        s3->curl->easy_cleanup(s3->idle[i]);
    pthread_mutex_destroy(&s3->lock);
    gp_secret_wipe(&s3->credentials, sizeof(s3->credentials));
    gp_free(s3);
}

const gp_s3_source *gp_s3_get_source(const gp_s3 *s3)
{
    return &s3->source;
}

gp_s3_stats gp_s3_get_stats(const gp_s3 *s3)
{
    return (gp_s3_stats){ s3->requests, s3->retries };
}

/* ---- connections and credentials ---- */

/* Read the credentials again; keep the old ones if none are found. Call with the lock held. */
static void credentials_renew(gp_s3 *s3)
{
    gp_s3_credentials now;

    s3->secrets_version = gp_secrets_version();
    if (gp_s3_credentials_find(&now, s3->source.profile, NULL) != GP_OK)
        return;
    if (strcmp(now.id, s3->credentials.id) != 0 || strcmp(now.secret, s3->credentials.secret) != 0 ||
        strcmp(now.token, s3->credentials.token) != 0)
        s3->credentials_version++;
    s3->credentials = now;
    gp_secret_wipe(&now, sizeof(now));
}

/* Return whether there are other credentials than those that signed a request. Another thread may
 * have renewed them while the request was in flight. */
static bool credentials_changed(const s3_request *request)
{
    gp_s3 *s3 = request->s3;

    pthread_mutex_lock(&s3->lock);
    if (s3->credentials_version == request->credentials_version)
        credentials_renew(s3);
    const bool changed = s3->credentials_version != request->credentials_version;

    pthread_mutex_unlock(&s3->lock);
    return changed;
}

/* Sign a request with the current credentials. The caller frees *headers after the transfer. */
static void handle_sign(CURL *handle, s3_request *request, struct curl_slist **headers)
{
    gp_s3 *s3 = request->s3;
    char algorithm[96], token[GP_S3_TOKEN_BYTES_MAX + 32];

    if (s3->source.anonymous)
        return;
    snprintf(algorithm, sizeof(algorithm), "aws:amz:%s:s3", s3->source.region);
    pthread_mutex_lock(&s3->lock);
    if (gp_secrets_version() != s3->secrets_version)
        credentials_renew(s3);

    /* If signing is not enabled, id and secret must not be set: libcurl would send them as a plain
     * name and password. */
    if (s3->curl->easy_setopt(handle, CURLOPT_AWS_SIGV4, algorithm) == CURLE_OK) {
        s3->curl->easy_setopt(handle, CURLOPT_USERNAME, s3->credentials.id);
        s3->curl->easy_setopt(handle, CURLOPT_PASSWORD, s3->credentials.secret);
    }
    if (s3->credentials.token[0] != '\0') {
        snprintf(token, sizeof(token), "x-amz-security-token: %s", s3->credentials.token);
        *headers = s3->curl->slist_append(*headers, token);
        gp_secret_wipe(token, sizeof(token));
    }
    snprintf(request->from, sizeof(request->from), "%s", s3->credentials.from);
    request->credentials_version = s3->credentials_version;
    pthread_mutex_unlock(&s3->lock);
}

/* ---- one attempt ---- */

/* Append a received block to the buffer (curl write callback). Collect the body of an error
 * response separately. Return 0 to abort the transfer. */
static size_t on_body(char *data, size_t size, size_t count, void *context)
{
    s3_request *request = context;
    size_t bytes = size * count, most = request->wanted != NULL && request->wanted->bytes != GP_S3_REST
                                            ? request->wanted->bytes
                                            : request->body->bytes_max;

    request->s3->curl->easy_getinfo(request->handle, CURLINFO_RESPONSE_CODE, &request->http);
    if (request->http / 100 != 2) {
        size_t room = PROBLEM_BYTES_MAX - request->problem_bytes, kept = bytes < room ? bytes : room;

        memcpy(request->problem + request->problem_bytes, data, kept);
        request->problem_bytes += kept;
        request->problem[request->problem_bytes] = '\0';
        return bytes;
    }
    if (bytes > most - request->body->bytes) {
        request->too_long = true;
        return 0;
    }
    return gp_buffer_append(request->body, data, bytes, &request->body_error) == GP_OK ? bytes : 0;
}

/* Return the value of a header in the response; "": none. */
static const char *header_of(const s3_request *request, const char *name)
{
    struct curl_header *header;

    return request->s3->curl->easy_header(request->handle, name, 0, CURLH_HEADER, -1, &header) == CURLHE_OK
               ? header->value
               : "";
}

/* Evaluate the status and the headers of the response. */
static void headers_take(s3_request *request)
{
    const char *tag = header_of(request, "etag");
    unsigned long long first, last, total;
    struct tm when = { 0 };

    request->s3->curl->easy_getinfo(request->handle, CURLINFO_RESPONSE_CODE, &request->http);
    request->tag = tag[0] == '\0' ? 0 : gp_s3_tag(tag, strlen(tag));
    snprintf(request->region, sizeof(request->region), "%s", header_of(request, "x-amz-bucket-region"));
    request->has_range =
        sscanf(header_of(request, "content-range"), "bytes %llu-%llu/%llu", &first, &last, &total) == 3;
    request->range_begin = request->has_range ? first : 0;
    request->object_bytes = request->has_range ? total : 0;
    request->date =
        strptime(header_of(request, "date"), "%a, %d %b %Y %H:%M:%S GMT", &when) == NULL ? 0 : timegm(&when);
}

static void handle_setup(CURL *handle, s3_request *request)
{
    const gp_s3_retry_policy *retry = &request->s3->retry;
    const gp_curl *curl = request->s3->curl;
    const char *authorities = getenv("AWS_CA_BUNDLE");

    curl->easy_setopt(handle, CURLOPT_URL, request->url);
    curl->easy_setopt(handle, CURLOPT_PROTOCOLS_STR, "http,https");
    curl->easy_setopt(handle, CURLOPT_FOLLOWLOCATION, 0L);
    curl->easy_setopt(handle, CURLOPT_NOSIGNAL, 1L);
    curl->easy_setopt(handle, CURLOPT_USERAGENT, "gradpool");
    curl->easy_setopt(handle, CURLOPT_CONNECTTIMEOUT, (long)retry->connect_s);
    curl->easy_setopt(handle, CURLOPT_LOW_SPEED_LIMIT, (long)SLOW_BYTES_PER_SECOND);
    curl->easy_setopt(handle, CURLOPT_LOW_SPEED_TIME, (long)retry->stall_s);
    curl->easy_setopt(handle, CURLOPT_BUFFERSIZE, 128L << 10);
    curl->easy_setopt(handle, CURLOPT_ERRORBUFFER, request->detail);
    curl->easy_setopt(handle, CURLOPT_WRITEFUNCTION, on_body);
    curl->easy_setopt(handle, CURLOPT_WRITEDATA, request);
    if (authorities != NULL && authorities[0] != '\0')
        curl->easy_setopt(handle, CURLOPT_CAINFO, authorities);
    if (request->range[0] != '\0')
        curl->easy_setopt(handle, CURLOPT_RANGE, request->range);
}

/* Send a request once and store the response. The return status covers local failures only. */
static gp_status request_try(s3_request *request, gp_error *err)
{
    gp_s3 *s3 = request->s3;
    struct curl_slist *headers = NULL;
    CURL *handle = NULL;

    pthread_mutex_lock(&s3->lock);
    if (s3->idle_count > 0)
        handle = s3->idle[--s3->idle_count];
    pthread_mutex_unlock(&s3->lock);
    if (handle == NULL && (handle = s3->curl->easy_init()) == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for reading %s", request->name);
    gp_buffer_clear(request->body);
    request->handle = handle;
    request->too_long = false;
    request->body_error.code = GP_OK;
    request->problem_bytes = 0;
    request->problem[0] = request->detail[0] = '\0';
    handle_setup(handle, request);
    handle_sign(handle, request, &headers);
    if (headers != NULL)
        s3->curl->easy_setopt(handle, CURLOPT_HTTPHEADER, headers);
    s3->requests++;
    request->code = s3->curl->easy_perform(handle);
    headers_take(request);
    s3->curl->slist_free_all(headers);
    s3->curl->easy_reset(handle); /* removes the credentials from the handle */
    pthread_mutex_lock(&s3->lock);
    if (s3->idle_count < GP_S3_CONNECTIONS_MAX) {
        s3->idle[s3->idle_count++] = handle;
        handle = NULL;
    }
    pthread_mutex_unlock(&s3->lock);
    if (handle != NULL)
        s3->curl->easy_cleanup(handle);
    return GP_OK;
}

/* ---- checking the response ---- */

/* Error codes of S3 after which a retry may help. */
static const char *const transient_codes[] = { "SlowDown", "RequestTimeout", "InternalError",
                                               "ServiceUnavailable", NULL };

static bool code_is(const gp_s3_problem *problem, const char *const *codes)
{
    while (*codes != NULL && strcmp(problem->code, *codes) != 0)
        codes++;
    return *codes != NULL;
}

/* Fail with a message about rejected credentials. It names their origin, never their values. */
static gp_status fail_refused(const s3_request *request, const gp_s3_problem *problem, gp_error *err)
{
    static const char *const expired[] = { "ExpiredToken", "TokenRefreshRequired", "ExpiredTokenException",
                                           NULL };
    static const char *const wrong[] = { "InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken",
                                         NULL };
    const char *what = problem->message[0] != '\0' ? problem->message : "no reason given";
    const char *from =
        request->from[0] == '\0' ? "no source, because the request is not signed" : request->from;

    if (strcmp(problem->code, "RequestTimeTooSkewed") == 0)
        return gp_fail(err, GP_EPERM,
                       "%s: access denied (RequestTimeTooSkewed): the clock of this host is off by %lld s; "
                       "set it, for example with `timedatectl set-ntp true`",
                       request->name, request->date == 0 ? 0ll : (long long)(time(NULL) - request->date));
    if (code_is(problem, expired))
        return gp_fail(err, GP_EPERM,
                       "%s: the credentials have expired (%s); they are from %s; renew them there, or with "
                       "`gradpool up --secret-env NAMES`, which also works during a training",
                       request->name, problem->code, from);
    return gp_fail(err, GP_EPERM, "%s: access denied, %ld%s%s: %.120s; the credentials are from %s%s",
                   request->name, request->http, problem->code[0] != '\0' ? " " : "", problem->code, what,
                   from, code_is(problem, wrong) ? "; they are invalid" : "");
}

/* Fail with a message for a response whose status is not 2xx. */
static gp_status fail_answer(const s3_request *request, const gp_s3_problem *problem, gp_error *err)
{
    const gp_s3_source *source = &request->s3->source;
    const char *region = problem->region[0] != '\0' ? problem->region : request->region;
    const bool moved = request->http / 100 == 3 || strcmp(problem->code, "AuthorizationHeaderMalformed") == 0;

    if (moved && (region[0] == '\0' || strcmp(region, source->region) == 0))
        return gp_fail(err, GP_EINVAL, "%s: the server redirects the request (%ld %s); check the endpoint %s",
                       request->name, request->http, problem->code,
                       source->endpoint[0] != '\0' ? source->endpoint : "(the default of AWS)");
    if (moved)
        return gp_fail(err, GP_EINVAL, "%s: the bucket is in region %s, not in %s; add --s3-region %s",
                       request->name, region, source->region, region);
    if (strcmp(problem->code, "NoSuchBucket") == 0)
        return gp_fail(err, GP_ENOENT, "%s: no such bucket: %s%s%s", request->name, source->bucket,
                       source->endpoint[0] != '\0' ? " at " : "", source->endpoint);
    if (request->http == 404)
        return gp_fail(err, GP_ENOENT, "%s: no such object%s", request->name,
                       request->wanted != NULL && request->wanted->tag != 0 ? ", although it was listed"
                                                                            : "");
    if (request->http == 416)
        return gp_fail(err, GP_ECORRUPT, "%s has no bytes from %s on: it is empty, or shorter than expected",
                       request->name, request->range);
    if ((request->http == 401 || request->http == 403 || request->http == 400) &&
        !code_is(problem, transient_codes))
        return fail_refused(request, problem, err);
    return gp_fail(err, GP_EIO, "%s: the server replied %ld %s %.120s (tried %u times)", request->name,
                   request->http, problem->code, problem->message, request->s3->retry.tries);
}

static gp_status fail_ranges(const s3_request *request, gp_error *err)
{
    return gp_fail(err, GP_EUNSUPPORTED, "%s: the server does not support range requests", request->name);
}

/* Check that a successful response has the requested bytes. *again: a retry may help. */
static gp_status answer_check(s3_request *request, bool *again, gp_error *err)
{
    gp_s3_range *wanted = request->wanted;
    size_t got = request->body->bytes;

    if (wanted == NULL)
        return GP_OK;
    if (wanted->tag != 0 && request->tag != 0 && request->tag != wanted->tag)
        return gp_fail(
            err, GP_ECORRUPT,
            "%s has changed since it was listed (its ETag differs); restart to use the new version",
            request->name);
    if (request->range[0] != '\0' &&
        (request->has_range ? request->range_begin != wanted->offset : wanted->offset != 0))
        return fail_ranges(request, err);
    *again = true;
    if (wanted->bytes != GP_S3_REST && got != wanted->bytes)
        return gp_fail(err, GP_ECORRUPT, "%s: received %zu bytes, must be %llu", request->name, got,
                       (unsigned long long)wanted->bytes);
    wanted->tag = request->tag;
    wanted->object_bytes = request->has_range ? request->object_bytes : wanted->offset + got;
    return GP_OK;
}

/* Check the response to an attempt. *again: a retry may help. */
static gp_status request_judge(s3_request *request, bool *again, gp_error *err)
{
    gp_s3_problem problem;

    *again = false;
    if (request->body_error.code != GP_OK)
        return gp_fail(err, request->body_error.code, "%s: %s", request->name, request->body_error.message);
    if (request->too_long && request->range[0] != '\0' && !request->has_range)
        return fail_ranges(request, err);
    if (request->too_long)
        return gp_fail(
            err, request->wanted != NULL && request->wanted->bytes == GP_S3_REST ? GP_ELIMIT : GP_ECORRUPT,
            "%s: received more than %llu bytes", request->name,
            (unsigned long long)(request->wanted != NULL && request->wanted->bytes != GP_S3_REST
                                     ? request->wanted->bytes
                                     : request->body->bytes_max));
    if (request->code == CURLE_OK && request->http / 100 == 2)
        return answer_check(request, again, err);
    gp_s3_problem_parse(&problem, request->problem, request->problem_bytes);
    *again = gp_curl_is_transient(request->code, request->http) ||
             (request->code == CURLE_OK && code_is(&problem, transient_codes));
    if (request->code == CURLE_OK)
        return fail_answer(request, &problem, err);
    return gp_fail(err, GP_EIO, "cannot read %s: %s (tried %u times)", request->name,
                   request->detail[0] != '\0' ? request->detail
                                              : request->s3->curl->easy_strerror(request->code),
                   *again ? request->s3->retry.tries : 1);
}

/* Send a request until it succeeds or the attempts are used up. After a rejection, read the
 * credentials again; if they changed, retry once at no cost. */
static gp_status request_run(s3_request *request, gp_error *err)
{
    gp_s3 *s3 = request->s3;
    bool renewed = false, again = false;
    gp_error why;
    gp_status status;

    for (uint32_t attempt = 0;; attempt++) {
        status = request_try(request, err);
        if (status != GP_OK)
            return status;
        status = request_judge(request, &again, &why);
        if (status == GP_OK)
            return GP_OK;
        if (status == GP_EPERM && !renewed && !s3->source.anonymous && credentials_changed(request)) {
            renewed = true;
            attempt--;
            continue;
        }
        if (!again || attempt + 1 >= s3->retry.tries)
            break;
        gp_log(GP_LOG_INFO, "s3-retry", "retrying: %s", why.message);
        s3->retries++;
        /* The delay is exponential, less a random part of up to one half (jitter), so
         * that clients rejected together do not retry together. The clock's
         * nanoseconds provide the randomness. */
        uint64_t wait = (uint64_t)s3->retry.wait_ms << (attempt < 16 ? attempt : 16);

        wait = wait < WAIT_MAX_MS ? wait : WAIT_MAX_MS;
        gp_sleep_ms((int64_t)(wait - (uint64_t)gp_now_ns() % (wait / 2 + 1)));
    }
    if (err != NULL)
        *err = why;
    return status;
}

/* ---- requests ---- */

static gp_status request_new(s3_request **out, gp_s3 *s3, const char *key, gp_buffer *body, gp_error *err)
{
    s3_request *request = gp_calloc(1, sizeof(*request));
    gp_status status;

    if (request == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for reading s3://%s", s3->source.bucket);
    request->s3 = s3;
    request->body = body;
    snprintf(request->name, sizeof(request->name), "s3://%s/%s", s3->source.bucket, key);
    status = gp_s3_url(&s3->source, key, request->url, sizeof(request->url), err);
    if (status != GP_OK) {
        gp_free(request);
        return status;
    }
    *out = request;
    return GP_OK;
}

gp_status gp_s3_read(gp_s3 *s3, gp_s3_range *range, gp_buffer *out, gp_error *err)
{
    s3_request *request;
    gp_status status;

    gp_buffer_clear(out);
    if (range->bytes == 0) {
        range->object_bytes = range->offset;
        return GP_OK;
    }
    status = request_new(&request, s3, range->key, out, err);
    if (status != GP_OK)
        return status;
    request->wanted = range;
    if (range->bytes != GP_S3_REST)
        snprintf(request->range, sizeof(request->range), "%llu-%llu", (unsigned long long)range->offset,
                 (unsigned long long)(range->offset + range->bytes - 1));
    else if (range->offset > 0)
        snprintf(request->range, sizeof(request->range), "%llu-", (unsigned long long)range->offset);
    if (range->bytes != GP_S3_REST)
        status = gp_buffer_reserve(out, range->bytes, err);
    if (status == GP_OK)
        status = request_run(request, err);
    gp_free(request);
    return status;
}

/* State of a listing in pages. Each page is requested with start-after set to the last key of the
 * previous page. A continuation token would also work, but often contains a plus, and libcurl since
 * 8.14 signs a plus in a query incorrectly. */
typedef struct list_walk {
    gp_s3_visit visit;
    void *context;
    const char *name, *prefix;
    char last[GP_S3_KEY_BYTES_MAX + 1]; /* last key so far; "": none */
} list_walk;

/* Append the query parameters to the URL, sorted by name as the signature requires. Return false if
 * they do not fit. */
static bool list_query(char *url, size_t bytes, const list_walk *walk)
{
    size_t used = strlen(url);

    used += (size_t)snprintf(url + used, bytes - used,
                             "?encoding-type=url&list-type=2&max-keys=%d&prefix=", GP_S3_PAGE_OBJECTS_MAX);
    if (used >= bytes || !gp_s3_encode(url + used, bytes - used, walk->prefix, false))
        return false;
    used += strlen(url + used);
    if (walk->last[0] == '\0')
        return true;
    used += (size_t)snprintf(url + used, bytes - used, "&start-after=");
    return used < bytes && gp_s3_encode(url + used, bytes - used, walk->last, false);
}

/* Check one listed key and pass it to the visitor. Keys must increase: this detects a server that
 * repeats pages, and excludes duplicates. */
static gp_status list_object(void *context, const gp_s3_object *object, gp_error *err)
{
    list_walk *walk = context;

    if (strlen(object->key) > GP_S3_KEY_BYTES_MAX)
        return gp_fail(err, GP_ECORRUPT, "%s: a key has more than %d bytes", walk->name, GP_S3_KEY_BYTES_MAX);
    if (strcmp(object->key, walk->last) <= 0)
        return gp_fail(err, GP_ECORRUPT, "%s: the listing is not sorted: %.80s follows %.80s", walk->name,
                       object->key, walk->last);
    strcpy(walk->last, object->key);
    return strncmp(object->key, walk->prefix, strlen(walk->prefix)) == 0
               ? walk->visit(walk->context, object, err)
               : gp_fail(err, GP_ECORRUPT, "%s: the listing has a key with another prefix: %.80s", walk->name,
                         object->key);
}

/* Request one page. *more: another page follows, starting behind walk->last. */
static gp_status list_page(s3_request *request, list_walk *walk, bool *more, gp_error *err)
{
    gp_s3_page page;
    gp_status status;

    if (!list_query(request->url, sizeof(request->url), walk))
        return gp_fail(err, GP_ELIMIT, "%s: the URL of the listing is too long", request->name);
    status = request_run(request, err);
    if (status == GP_OK)
        status = gp_s3_page_parse(&page, gp_buffer_text(request->body), request->body->bytes, request->name,
                                  list_object, walk, err);
    if (status != GP_OK)
        return status;
    *more = page.truncated;
    return !*more || page.count > 0
               ? GP_OK
               : gp_fail(err, GP_ECORRUPT, "%s: a page of a truncated listing has no new objects",
                         request->name);
}

gp_status gp_s3_list(gp_s3 *s3, const char *prefix, gp_s3_visit visit, void *context, gp_error *err)
{
    list_walk walk = { .visit = visit, .context = context, .prefix = prefix };
    s3_request *request = NULL;
    size_t base = 0;
    bool more = true;
    gp_buffer body;
    gp_status status = GP_OK;

    gp_buffer_init(&body, GP_S3_PAGE_BYTES_MAX);
    if (strlen(prefix) > GP_S3_KEY_BYTES_MAX)
        status = gp_fail(err, GP_ELIMIT, "the prefix %.80s... has more than %d bytes", prefix,
                         GP_S3_KEY_BYTES_MAX);
    if (status == GP_OK)
        status = request_new(&request, s3, "", &body, err);
    if (status == GP_OK) {
        snprintf(request->name, sizeof(request->name), "s3://%s/%s", s3->source.bucket, prefix);
        walk.name = request->name;
        base = strlen(request->url);
    }
    while (status == GP_OK && more) {
        request->url[base] = '\0'; /* remove the query for the previous page */
        status = list_page(request, &walk, &more, err);
    }
    gp_free(request);
    gp_buffer_deinit(&body);
    return status;
}
