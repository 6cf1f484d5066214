/* fuzz_kubernetes.c: hostile replies of kubectl. The first byte selects the reply: a listing (0),
 * reasons (1), the facts of a job (2), or a termination message and a log (3). */
#include <stdlib.h>
#include <string.h>

#include "client/cluster/job_folder.h"
#include "client/cluster/kubernetes_state.h"
#include "common/base/printable.h"

#define NAME "gp-0123456789abcdef"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Abort if a promise of the parser is broken. Unlike assert(), this works in every build. */
static void promise(int kept)
{
    if (!kept)
        abort();
}

static void check_text(const char *text)
{
    promise(gp_printable_check("text", text, NULL) == GP_OK);
}

static void check_entries(const cluster_listing *listing)
{
    for (size_t i = 0; i < listing->count; i++) {
        promise(cluster_name_valid(listing->entries[i].name));
        check_text(listing->entries[i].id);
        check_text(listing->entries[i].text);
        check_text(listing->entries[i].reason);
    }
}

static void list_try(const char *text, size_t bytes)
{
    cluster_listing listing = { 0 };
    bool unexplained;
    gp_error err = { GP_OK, "" };

    if (kubernetes_list_parse(&listing, &unexplained, text, bytes, &err) != GP_OK)
        promise(listing.count == 0 && err.message[0] != '\0');
    check_entries(&listing);
    cluster_listing_deinit(&listing);
}

static void explain_try(const char *text, size_t bytes)
{
    cluster_listing listing = { 0 };
    cluster_entry *entry;

    promise(cluster_listing_add(&listing, &entry, NULL) == GP_OK);
    strcpy(entry->name, NAME);
    entry->state = CLUSTER_ENTRY_QUEUED;
    if (kubernetes_explain(&listing, text, bytes, NULL) != GP_OK)
        promise(listing.entries[0].reason[0] == '\0');
    check_entries(&listing);
    cluster_listing_deinit(&listing);
}

static void facts_try(const char *text, size_t bytes)
{
    static kubernetes_pods pods;
    cluster_facts facts;

    if (kubernetes_facts_parse(&facts, &pods, NAME, text, bytes, NULL) != GP_OK)
        return;
    promise(facts.attempt <= CLUSTER_ATTEMPTS_MAX && pods.count <= KUBERNETES_PODS_MAX);
    promise(!facts.has_result || (facts.exit_code >= 0 && facts.exit_code <= 255));
    check_text(facts.reason);
    check_text(facts.attempt_reason);
    check_text(facts.host);
    for (size_t i = 0; i < pods.count; i++) {
        promise(pods.list[i].name[0] != '\0' && pods.list[i].name[0] != '-');
        check_text(pods.list[i].name);
    }
}

static void message_try(const char *text)
{
    kubernetes_message message;

    promise(kubernetes_attempt_parse(text) <= CLUSTER_ATTEMPTS_MAX);
    if (!kubernetes_message_parse(&message, text))
        return;
    promise(message.attempt <= CLUSTER_ATTEMPTS_MAX && message.exit_code >= 0 && message.exit_code <= 255);
    check_text(message.reason);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    char *text = malloc(size);

    if (text == NULL)
        return 0;
    memcpy(text, data + 1, size - 1);
    text[size - 1] = '\0';
    switch (data[0] % 4) {
    case 0:
        list_try(text, size - 1);
        break;
    case 1:
        explain_try(text, size - 1);
        break;
    case 2:
        facts_try(text, size - 1);
        break;
    default:
        message_try(text);
    }
    free(text);
    return 0;
}
