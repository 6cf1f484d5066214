/* multinode.c -- network detection for NCCL. Among the physical interfaces that are up, choose
 * the fastest; among equals, the one with the default route. */
#include "worker/train/multinode.h"

#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/system/cgroup.h"

enum { PATH_BYTES = 512, LINE_BYTES = 256, NAMES_BYTES = 300 };

/* Read a file's first line. false: the file cannot be read. */
static bool line_read(char line[LINE_BYTES], const char *root, const char *format, const char *name)
{
    char path[PATH_BYTES], rest[LINE_BYTES + 64];

    snprintf(rest, sizeof(rest), format, name);
    snprintf(path, sizeof(path), "%s%s", root, rest);
    return gp_line_read(path, line, LINE_BYTES);
}

static bool is_there(const char *root, const char *path)
{
    char whole[PATH_BYTES];
    FILE *file;

    snprintf(whole, sizeof(whole), "%s%s", root, path);
    file = fopen(whole, "re");
    if (file != NULL)
        fclose(file);
    return file != NULL;
}

/* ---- interfaces ---- */

/* Return whether an interface can lead to another host. Bridges, tunnels and container
 * interfaces cannot. */
static bool interface_is_real(const char *name)
{
    static const char *const others[] = { "lo",  "docker",  "veth", "virbr", "br-",
                                          "cni", "flannel", "tun",  "tap" };

    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        if (strncmp(name, others[i], strlen(others[i])) == 0)
            return false;
    return true;
}

/* Match an interface name against NCCL_SOCKET_IFNAME: comma-separated prefixes; "=" requires the
 * full name, "^" excludes the matches. */
static bool interface_matches(const char *wanted, const char *name)
{
    bool others = *wanted == '^', exact, found = false;
    char text[LINE_BYTES], *rest = text, *word;

    snprintf(text, sizeof(text), "%s", wanted + others);
    exact = *text == '=';
    rest += exact;
    while ((word = strsep(&rest, ",")) != NULL)
        found = found || (exact ? strcmp(word, name) == 0 : strncmp(word, name, strlen(word)) == 0);
    return found != others;
}

static void default_route(char name[LINE_BYTES], const char *root)
{
    char path[PATH_BYTES], line[LINE_BYTES];
    FILE *file;

    name[0] = '\0';
    snprintf(path, sizeof(path), "%s/proc/net/route", root);
    file = fopen(path, "re");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        char *tab = strchr(line, '\t');

        if (tab != NULL && strncmp(tab + 1, "00000000\t", 9) == 0) {
            *tab = '\0';
            snprintf(name, LINE_BYTES, "%s", line);
            break;
        }
    }
    if (file != NULL)
        fclose(file);
}

static gp_status interface_choose(gp_multinode *out, const char *root, gp_error *err)
{
    const char *wanted = getenv("NCCL_SOCKET_IFNAME");
    char path[PATH_BYTES], line[LINE_BYTES], route[LINE_BYTES], names[NAMES_BYTES] = "";
    const struct dirent *entry;
    int64_t best = -1;
    bool matched = false;
    DIR *folder;

    default_route(route, root);
    snprintf(path, sizeof(path), "%s/sys/class/net", root);
    folder = opendir(path);
    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        const char *name = entry->d_name;
        int64_t speed = 0, rank;
        size_t used = strlen(names);

        if (name[0] == '.' || strlen(name) >= sizeof(out->interface) - 1 ||
            !line_read(line, root, "/sys/class/net/%s/operstate", name) || strcmp(line, "up") != 0)
            continue;
        if (interface_is_real(name) || wanted != NULL)
            snprintf(names + used, sizeof(names) - used, "%s%s", used == 0 ? "" : ", ", name);
        if (line_read(line, root, "/sys/class/net/%s/speed", name) && atoll(line) > 0)
            speed = atoll(line);
        matched = matched || (wanted != NULL && interface_matches(wanted, name));
        rank = 2 * speed + (strcmp(name, route) == 0);
        if ((wanted == NULL ? !interface_is_real(name) : !interface_matches(wanted, name)) || rank <= best)
            continue;
        best = rank;
        out->speed = (unsigned)speed;
        snprintf(out->interface, sizeof(out->interface), "=%.62s", name);
    }
    if (folder != NULL)
        closedir(folder);
    if (wanted != NULL && matched)
        snprintf(out->interface, sizeof(out->interface), "%.63s", wanted);
    if (wanted != NULL && !matched)
        return gp_fail(err, GP_EINVAL, "no interface matches NCCL_SOCKET_IFNAME='%s'; %s%s are up", wanted,
                       names[0] == '\0' ? "none" : "", names);
    if (best < 0)
        return gp_fail(
            err, GP_ENODEV,
            "no network interface to other hosts is up; omit nccl-auto-network, or set NCCL_SOCKET_IFNAME");
    return GP_OK;
}

/* ---- InfiniBand, RoCE ---- */

static void card_find(gp_multinode *out, const char *root)
{
    char path[PATH_BYTES], line[LINE_BYTES];
    const struct dirent *entry;
    DIR *folder;

    snprintf(path, sizeof(path), "%s/sys/class/infiniband", root);
    folder = opendir(path);
    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        if (entry->d_name[0] == '.' ||
            !line_read(line, root, "/sys/class/infiniband/%s/ports/1/state", entry->d_name) ||
            strstr(line, "ACTIVE") == NULL)
            continue;
        if (out->card[0] == '\0' || strcmp(entry->d_name, out->card) < 0)
            snprintf(out->card, sizeof(out->card), "%.63s", entry->d_name);
    }
    if (folder != NULL)
        closedir(folder);
}

gp_status gp_multinode_detect(gp_multinode *out, const char *root, gp_error *err)
{
    gp_multinode found = { .reason = "" };
    char line[LINE_BYTES];
    gp_status status = interface_choose(&found, root, err);

    if (status != GP_OK)
        return status;
    card_find(&found, root);
    found.direct = true;
    if (found.card[0] == '\0') {
        found.direct = false;
    } else if (is_there(root, "/sys/module/nvidia_peermem/refcnt") ||
               is_there(root, "/sys/module/nv_peer_mem/refcnt")) {
        found.reason = "by nvidia-peermem";
    } else if (line_read(line, root, "%s", "/proc/driver/nvidia/version") &&
               strstr(line, "Open Kernel Module") != NULL) {
        found.reason = "by DMA-BUF";
    } else {
        found.direct = false;
        found.reason = "run modprobe nvidia-peermem, or install NVIDIA's open kernel modules";
    }
    *out = found;
    return GP_OK;
}

void gp_multinode_set(const gp_multinode *found)
{
    /* Detect a failed InfiniBand peer after 4.096 us * 2^17 * 7 retries, 3.8 s rather than 30 s. */
    static const char *const cards[][2] = { { "NCCL_IB_TIMEOUT", "17" }, { "NCCL_IB_RETRY_CNT", "7" } };
    /* One TCP connection does not saturate the link; 4 threads with 4 connections each do. */
    static const char *const sockets[][2] = { { "NCCL_SOCKET_NTHREADS", "4" },
                                              { "NCCL_NSOCKS_PERTHREAD", "4" } };
    const bool card = found->card[0] != '\0';

    setenv("NCCL_SOCKET_IFNAME", found->interface, 0);
    for (size_t i = 0; i < 2; i++)
        setenv(card ? cards[i][0] : sockets[i][0], card ? cards[i][1] : sockets[i][1], 0);
    if (card && found->direct)
        setenv("NCCL_NET_GDR_LEVEL", "SYS", 0);
}

void gp_multinode_describe(const gp_multinode *found, char *text, size_t bytes, bool *warning)
{
    char speed[32] = "";

    if (found->speed > 0)
        snprintf(speed, sizeof(speed), " (%u Mbit/s)", found->speed);
    *warning = found->card[0] == '\0' || !found->direct;
    if (found->card[0] == '\0')
        snprintf(
            text, bytes,
            "nccl-auto-network: using interface %s%s with TCP; no InfiniBand or RoCE card has an active port",
            found->interface, speed);
    else
        snprintf(text, bytes, "nccl-auto-network: using interface %s%s and card %s; GPUDirect RDMA is %s: %s",
                 found->interface, speed, found->card, found->direct ? "on" : "off", found->reason);
}
