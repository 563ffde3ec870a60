*** Comments ***
The firmware on its serial line (docs/protocol.md), on Renode and on the board model: `make renode`.
Only keywords that both know. The suite knows no model: whatever network is in the ELF, it must pass.

*** Settings ***
Resource                keywords.resource

*** Keywords ***
Logits Of Pattern
    [Arguments]                 ${number}
    Ask                         pattern ${number}    ^ok pattern$
    ${logits}=                  Ask    infer    ^logits(( [0-9a-f]{8})+)$
    Wait For Line On Uart       ^ok infer \\d+$    treatAsRegex=true
    RETURN                      ${logits.Groups[0]}

*** Test Cases ***
Banner Comes Before Ready
    Power On
    Wait For Line On Uart       ^microtrain ${BOARD} \\S+ [0-9a-f]{8}$    treatAsRegex=true
    Wait For Line On Uart       ^ready$    treatAsRegex=true

Ping Is Answered
    Boot
    Ask                         ping    ^ok pong$

Info Names Board And Input
    Boot
    Ask                         info    ^board ${BOARD}$
    Wait For Line On Uart       ^input \\d+x\\d+x\\d+$    treatAsRegex=true
    Wait For Line On Uart       ^classes \\d+$    treatAsRegex=true
    Wait For Line On Uart       ^baud 115200$    treatAsRegex=true
    Wait For Line On Uart       ^ok$    treatAsRegex=true

The Same Image Gives The Same Logits
    Boot
    Train On Pattern            3    1
    ${first}=                   Logits Of Pattern    7
    ${other}=                   Logits Of Pattern    8
    ${again}=                   Logits Of Pattern    7
    Should Be Equal             ${first}    ${again}
    Should Not Be Equal         ${first}    ${other}

An Image Is Used Once
    Boot
    Logits Of Pattern           7
    Ask                         infer    ^err image rows missing \\d+

A Row Arrives As Text
    Boot
    Ask                         image    ^ok image$
    Ask                         row 0 0 00ff    ^(ok row 0|err argument .*)$
    Ask                         row 0 0 zz    ^err argument
    Ask                         infer    ^err image rows missing \\d+

Training Changes The Weights And Reset Restores Them
    Boot
    ${start}=                   Trainables
    Train On Pattern            3    1
    ${trained}=                 Trainables
    Should Not Be Equal         ${start}    ${trained}
    Ask                         reset    ^ok reset$
    ${restored}=                Trainables
    Should Be Equal             ${start}    ${restored}
    Train On Pattern            3    1
    ${repeated}=                Trainables
    Should Be Equal             ${trained}    ${repeated}

Unknown Command Is Refused
    Boot
    Ask                         nonsense 1 2    ^err command
    Ask                         train 999999    ^err
    Ask                         ping    ^ok pong$

Garbage Leaves The Weights Alone
    Boot
    Train On Pattern            5    0
    ${before}=                  Trainables
    ${long}=                    Evaluate    'x' * 300
    Ask                         ${long}    ^err command
    Write To Uart               \xa5Z\xff\xfe\xa5\xa5Z\x81
    Wait For Line On Uart       ^err    treatAsRegex=true
    Ask                         nonsense    ^err command
    Ask                         ping    ^ok pong$
    ${after}=                   Trainables
    Should Be Equal             ${before}    ${after}

Restart After A Reset Brings The Banner And The First Weights
    Boot
    ${start}=                   Trainables
    Train On Pattern            5    0
    Ask                         reset    ^ok reset$
    Ask                         reboot    ^ok reboot$
    Wait For Line On Uart       ^ready$    treatAsRegex=true
    ${again}=                   Trainables
    Should Be Equal             ${start}    ${again}

The Self-Test Passes And Changes Nothing Learned
    Boot
    Train On Pattern            5    0
    ${before}=                  Trainables
    Ask                         selftest    ^kernels (ok|not tried: .*)$
    Wait For Line On Uart       ^weights [0-9a-f]{8} ok$    treatAsRegex=true
    Wait For Line On Uart       ^memory \\d+ bytes ok$    treatAsRegex=true
    Wait For Line On Uart       ^ok selftest$    treatAsRegex=true
    ${after}=                   Trainables
    Should Be Equal             ${before}    ${after}
