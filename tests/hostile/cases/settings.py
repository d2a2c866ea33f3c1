"""Remote configuration that must not reach files, commands, classes or addresses, or reveal a secret.

CVE-2023-33246 and CVE-2023-37582 set a path or a command and had it used; CVE-2024-23321 read data that only an
administrator may see. CVE-2019-17572 is in `names`.
"""

from collections.abc import Iterator

from hostile.cases.case import Case, request
from rmqpy.protocol.codes import RequestCode as Code
from wire import Frame

BROKER = {
    "a home with a command": b"rocketmqHome=-c $@|sh . echo touch /hostile;\nfilterServerNums=1\n",
    "the number of filter servers": b"filterServerNums=1\n",
    "the path of its own file": b"brokerConfigPath=/hostile\n",
    "the store's folder": b"storePathRootDir=/hostile\n",
    "the commit log's folder": b"storePathCommitLog=/hostile\n",
    "another port": b"listenPort=1\n",
    "another name server": b"namesrvAddr=127.0.0.1:1\n",
    "another address": b"brokerIP1=169.254.169.254\n",
    "a list of what is not allowed": b"configBlackList=\n",
    "an unknown key": b"hostile=1\n",
    "a good key behind a bad one": b"hostile=1\nautoCreateTopicEnable=false\n",
    "a bad key behind a good one": b"autoCreateTopicEnable=false\nbrokerConfigPath=/hostile\n",
    "a key hidden by an escape": b"broker\\u0043onfigPath=/hostile\n",
    "a key hidden by a continued line": b"brokerConf\\\n  igPath=/hostile\n",
    # Values that a changeable key refuses.
    "a word for a number": b"fileReservedTime=soon\n",
    "a number below its bound": b"fileReservedTime=-1\n",
    "a number beyond 64 bits": b"fileReservedTime=" + b"9" * 4_000 + b"\n",
}
#: Keys that no administrator may change; all others are refused as not changeable online.
PROTECTED = (b"rocketmqHome", b"onfigPath=", b"igPath=", b"configBlackList")
#: No properties, or more than any.
UNREADABLE = {
    "a hundred thousand keys": b"".join(b"k%d=1\n" % number for number in range(100_000)),
    "a cut escape": b"a=\\u12\n",
}
NAME_SERVER = {
    "the path of its own file": b"configStorePath=/hostile\nkvConfigPath=x\n",
    "the path of its own file alone": b"configStorePath=/hostile\n",
    "the path of its table": b"kvConfigPath=/hostile\n",
    "a home": b"rocketmqHome=/hostile\n",
    "a list of what is not allowed": b"configBlackList=\n",
    "a key hidden by an escape": b"config\\u0053torePath=/hostile\n",
}
#: Requests that would load a class, run something, or reveal credentials: absent, except for users.
ADMINISTRATION = (
    Code.REGISTER_FILTER_SERVER,
    Code.REGISTER_MESSAGE_FILTER_CLASS,
    Code.UPDATE_AND_CREATE_ACL_CONFIG,
    Code.DELETE_ACL_CONFIG,
    Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
    Code.GET_BROKER_CLUSTER_ACL_INFO,
    Code.GET_BROKER_CLUSTER_ACL_CONFIG,
    Code.AUTH_CREATE_USER,
    Code.AUTH_GET_USER,
    Code.AUTH_LIST_USER,
)
#: Requests that a broker serves: a body without a user creates none and returns none. Accounts of the first
#: access control are refused if it is off.
SERVED_BY_BROKER = {
    Code.UPDATE_AND_CREATE_ACL_CONFIG: 1,
    Code.DELETE_ACL_CONFIG: 1,
    Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: 1,
    Code.GET_BROKER_CLUSTER_ACL_INFO: 1,
    Code.AUTH_CREATE_USER: 1,
    Code.AUTH_GET_USER: 0,
    Code.AUTH_LIST_USER: 0,
}


def settings() -> Iterator[Case]:
    for what, body in BROKER.items():
        end = 16 if any(word in body for word in PROTECTED) else 29
        yield request(f"broker settings: {what}", end, Frame(Code.UPDATE_BROKER_CONFIG, body=body))
    for what, body in UNREADABLE.items():
        yield request(f"broker settings: {what}", 1, Frame(Code.UPDATE_BROKER_CONFIG, body=body))
    for what, body in NAME_SERVER.items():
        frame = Frame(Code.UPDATE_NAMESRV_CONFIG, body=body)
        yield request(f"name server settings: {what}", 16, frame, "namesrv")
    for what, body in (
        UNREADABLE.items() | {"a product environment": b"productEnvName=../../hostile\n"}.items()
    ):
        frame = Frame(Code.UPDATE_NAMESRV_CONFIG, body=body)
        yield request(f"name server settings: {what}", 1, frame, "namesrv")
    for code in ADMINISTRATION:
        for target in ("broker", "namesrv"):
            frame = Frame(code, ext={"username": "admin", "accessKey": "a"}, body=b"rm -rf /")
            end = SERVED_BY_BROKER.get(code, 3) if target == "broker" else 3
            yield request(f"{code.name.lower()} at a {target}", end, frame, target)
